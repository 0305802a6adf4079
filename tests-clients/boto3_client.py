"""boto3 with its present defaults: CRC trailers on every upload, checksums verified on every download."""
import io
import os
import threading

from harness import WORK, boto3_client, check, data, digest, equal, error_code, main, new_bucket_name, test

S3 = boto3_client()
BUCKET = new_bucket_name("boto3")


@test
def a_bucket_is_made_and_listed():
    S3.create_bucket(Bucket=BUCKET)
    check(BUCKET in [bucket["Name"] for bucket in S3.list_buckets()["Buckets"]], "the new bucket is not listed")
    S3.head_bucket(Bucket=BUCKET)


@test
def objects_of_many_sizes_come_back_as_they_were():
    for size in (0, 1, 4096, 16384, 16385, 65536, 65537, 1 << 20, (1 << 20) + 1, 3_333_333):
        body = data(size, size)
        S3.put_object(Bucket=BUCKET, Key=f"size/{size}", Body=body, Metadata={"size": str(size)})
        answer = S3.get_object(Bucket=BUCKET, Key=f"size/{size}")
        equal(answer["Body"].read(), body, f"body of {size} bytes")
        equal(answer["Metadata"], {"size": str(size)}, "metadata")


@test
def a_file_of_40_mib_goes_up_and_down_in_parts():
    path, back = os.path.join(WORK, "large"), os.path.join(WORK, "large.back")
    with open(path, "wb") as file:
        file.write(data(40 << 20, 1))
    S3.upload_file(path, BUCKET, "large")
    check("-" in S3.head_object(Bucket=BUCKET, Key="large")["ETag"], "no multipart ETag")
    S3.download_file(BUCKET, "large", back)
    equal(digest(back), digest(path), "digest")


@test
def ranges_are_exact():
    body = data(300_000, 2)
    S3.put_object(Bucket=BUCKET, Key="ranged", Body=body)
    for first, last in ((0, 0), (65535, 65536), (131_071, 262_145), (299_999, 299_999), (100, 999_999)):
        answer = S3.get_object(Bucket=BUCKET, Key="ranged", Range=f"bytes={first}-{last}")
        equal(answer["Body"].read(), body[first : last + 1], f"range {first}-{last}")
    equal(S3.get_object(Bucket=BUCKET, Key="ranged", Range="bytes=-5")["Body"].read(), body[-5:], "suffix")


@test
def awkward_keys_are_kept_byte_for_byte():
    keys = ["a/../b", "//", "a//b", " ", "ü/日本", "a+b c%20d", "x" * 1024, "end/", "a\nb", "<&>\"'"]
    for key in keys:
        S3.put_object(Bucket=BUCKET, Key=key, Body=key.encode())
    for key in keys:
        equal(S3.get_object(Bucket=BUCKET, Key=key)["Body"].read(), key.encode(), f"body of {key!r}")
    pages = S3.get_paginator("list_objects_v2").paginate(Bucket=BUCKET, PaginationConfig={"PageSize": 3})
    listed = [entry["Key"] for page in pages for entry in page.get("Contents", [])]
    check(set(keys) <= set(listed), f"not listed: {set(keys) - set(listed)}")
    equal(listed, sorted(listed, key=str.encode), "order of the listing")


@test
def of_16_racing_conditional_writers_exactly_one_wins():
    results = []

    def write(number):
        try:
            boto3_client().put_object(Bucket=BUCKET, Key="race", Body=str(number).encode(), IfNoneMatch="*")
            results.append(number)
        except Exception as error:  # every loser must lose in the documented way
            results.append(error.response["Error"]["Code"])

    threads = [threading.Thread(target=write, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    winners = [result for result in results if isinstance(result, int)]
    equal(len(winners), 1, f"winners among {results}")
    check(set(results) - set(winners) <= {"PreconditionFailed", "ConditionalRequestConflict"}, f"losers: {results}")
    equal(S3.get_object(Bucket=BUCKET, Key="race")["Body"].read(), str(winners[0]).encode(), "the winner's body")


@test
def a_copy_is_independent_of_its_source():
    body = data(2_000_000, 3)
    S3.put_object(Bucket=BUCKET, Key="source", Body=body)
    S3.copy_object(Bucket=BUCKET, Key="copy", CopySource={"Bucket": BUCKET, "Key": "source"})
    S3.delete_object(Bucket=BUCKET, Key="source")
    equal(S3.get_object(Bucket=BUCKET, Key="copy")["Body"].read(), body, "the copy")
    equal(error_code(S3.get_object, Bucket=BUCKET, Key="source"), (404, "NoSuchKey"), "the source")


@test
def versions_are_kept_and_a_delete_marker_hides_them():
    bucket = new_bucket_name("versions")
    S3.create_bucket(Bucket=bucket)
    S3.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
    ids = [S3.put_object(Bucket=bucket, Key="k", Body=body)["VersionId"] for body in (b"one", b"two")]
    marker = S3.delete_object(Bucket=bucket, Key="k")
    check(marker["DeleteMarker"], "no delete marker")
    equal(error_code(S3.get_object, Bucket=bucket, Key="k"), (404, "NoSuchKey"), "GET below a marker")
    equal(S3.get_object(Bucket=bucket, Key="k", VersionId=ids[0])["Body"].read(), b"one", "the first version")
    S3.delete_object(Bucket=bucket, Key="k", VersionId=marker["VersionId"])
    equal(S3.get_object(Bucket=bucket, Key="k")["Body"].read(), b"two", "the newest version")


@test
def checksums_of_every_algorithm_are_verified_and_kept():
    for algorithm in ("CRC32", "CRC32C", "CRC64NVME", "SHA1", "SHA256"):
        S3.put_object(Bucket=BUCKET, Key=f"sum/{algorithm}", Body=io.BytesIO(data(100_000)), ChecksumAlgorithm=algorithm)
        head = S3.head_object(Bucket=BUCKET, Key=f"sum/{algorithm}", ChecksumMode="ENABLED")
        check(head.get(f"Checksum{algorithm}"), f"no {algorithm} comes back")


@test
def many_keys_are_deleted_at_once_and_the_bucket_after_them():
    for bucket in [bucket["Name"] for bucket in S3.list_buckets()["Buckets"] if bucket["Name"].startswith(("boto3-", "versions-"))]:
        for page in S3.get_paginator("list_object_versions").paginate(Bucket=bucket):
            entries = page.get("Versions", []) + page.get("DeleteMarkers", [])
            objects = [{"Key": entry["Key"], "VersionId": entry["VersionId"]} for entry in entries]
            if objects:
                equal(S3.delete_objects(Bucket=bucket, Delete={"Objects": objects}).get("Errors", []), [], "errors")
        S3.delete_bucket(Bucket=bucket)


if __name__ == "__main__":
    main()
