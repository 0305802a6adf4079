"""The aws command: cp, ls, sync, mv, rm, presign."""
import os
import urllib.request

from harness import ACCESS, ENDPOINT, REGION, SECRET, WORK, check, equal, main, new_bucket_name, run, test, tree, write_tree

BUCKET = new_bucket_name("awscli")
# In us-east-1 this client still presigns with version 2 of the signature unless told otherwise; new buckets of AWS refuse that too.
CONFIG = os.path.join(WORK, "config")
with open(CONFIG, "w") as file:
    file.write("[default]\ns3 =\n    signature_version = s3v4\n")
ENV = {"AWS_CONFIG_FILE": CONFIG, "AWS_ACCESS_KEY_ID": ACCESS, "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_DEFAULT_REGION": REGION}
SOURCE, BACK = os.path.join(WORK, "source"), os.path.join(WORK, "back")


def aws(*words, **options):
    return run("aws", "--endpoint-url", ENDPOINT, *words, env=ENV, **options)


@test
def a_bucket_is_made():
    aws("s3", "mb", f"s3://{BUCKET}")
    check(BUCKET in aws("s3", "ls"), "the bucket is not listed")


@test
def a_folder_is_synced_there_and_back():
    files = write_tree(SOURCE, [0, 10, 70_000, 1 << 20, 12 << 20, 5, 99])
    aws("s3", "sync", "--only-show-errors", SOURCE, f"s3://{BUCKET}/tree")
    aws("s3", "sync", "--only-show-errors", f"s3://{BUCKET}/tree", BACK)
    equal(tree(BACK), files, "what came back")
    equal(aws("s3", "sync", SOURCE, f"s3://{BUCKET}/tree").strip(), "", "a second sync")


@test
def a_stream_of_unknown_length_is_stored():
    aws("s3", "cp", "-", f"s3://{BUCKET}/stream", stdin=b"x" * 9_000_000)
    equal(len(aws("s3", "cp", f"s3://{BUCKET}/stream", "-")), 9_000_000, "length")


@test
def a_presigned_url_opens_one_object_without_keys():
    url = aws("s3", "presign", f"s3://{BUCKET}/tree/plain-2.bin").strip()
    with open(os.path.join(SOURCE, "plain-2.bin"), "rb") as file, urllib.request.urlopen(url) as answer:
        equal(answer.read(), file.read(), "body")


@test
def a_move_leaves_one_object():
    aws("s3", "mv", f"s3://{BUCKET}/stream", f"s3://{BUCKET}/moved")
    listed = aws("s3", "ls", f"s3://{BUCKET}/")
    check("moved" in listed and "stream" not in listed, listed)


@test
def everything_is_removed_with_the_bucket():
    aws("s3", "rb", "--force", f"s3://{BUCKET}")
    check(BUCKET not in aws("s3", "ls"), "the bucket is still there")


if __name__ == "__main__":
    main()
