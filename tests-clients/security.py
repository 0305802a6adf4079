"""Attacks over a plain socket on a real server. Each is a row of the project's security list that needs no inside view."""
import http.client
import os
import signal
import socket
import urllib.parse

from harness import ACCESS, REGION, SECRET, WORK, Server, boto3_client, check, data, equal, error_code, main, test

SERVER = Server(os.path.join(WORK, "store")).start()
S3 = boto3_client(SERVER.endpoint, signature_version="s3v4")
HOST, PORT = SERVER.endpoint.removeprefix("http://").split(":")
S3.create_bucket(Bucket="private")
S3.put_object(Bucket="private", Key="secret", Body=b"secret body")


def signed(method, path, body=b"", headers=None, secret=SECRET, access=ACCESS, payload="UNSIGNED-PAYLOAD"):
    """Headers that sign this request."""
    from botocore.auth import S3SigV4Auth
    from botocore.awsrequest import AWSRequest
    from botocore.credentials import Credentials

    request = AWSRequest(method, f"http://{HOST}:{PORT}{path}", headers={"X-Amz-Content-SHA256": payload, **(headers or {})}, data=body)
    request.context["payload_signing_enabled"] = False
    auth = S3SigV4Auth(Credentials(access, secret), "s3", REGION)
    auth.payload = lambda _: payload
    auth.add_auth(request)
    return dict(request.headers.items())


def send(method, path, body=b"", headers=None):
    """Status, body of the answer."""
    connection = http.client.HTTPConnection(HOST, int(PORT), timeout=30)
    try:
        connection.request(method, path, body=body, headers=headers or {})
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def raw(text, wait=5):
    """Everything that comes back for these bytes until the server closes or is silent."""
    with socket.create_connection((HOST, int(PORT)), timeout=wait) as stream:
        stream.sendall(text)
        parts = []
        try:
            while part := stream.recv(65536):
                parts.append(part)
        except (TimeoutError, ConnectionResetError):
            pass
    return b"".join(parts)


def stored(key):
    return S3.list_objects_v2(Bucket="private", Prefix=key)["KeyCount"] > 0


def refused(found, *statuses):
    check(found[0] in statuses, f"answered {found[0]} instead of {statuses}: {found[1][:200]!r}")


@test
def row_1_an_unsigned_trailer_upload_with_a_wrong_signature_stores_nothing():
    headers = signed("PUT", "/private/row1", secret="wrong", payload="STREAMING-UNSIGNED-PAYLOAD-TRAILER", headers={"x-amz-decoded-content-length": "1"})
    refused(send("PUT", "/private/row1", b"1\r\na\r\n0\r\n\r\n", headers), 403)
    check(not stored("row1"), "it was stored")


@test
def row_2_credentials_in_the_query_only_do_not_open_a_streaming_upload():
    query = urllib.parse.urlencode({"X-Amz-Credential": f"{ACCESS}/20260101/{REGION}/s3/aws4_request", "X-Amz-Algorithm": "AWS4-HMAC-SHA256"})
    headers = {"x-amz-content-sha256": "STREAMING-UNSIGNED-PAYLOAD-TRAILER", "x-amz-decoded-content-length": "1"}
    refused(send("PUT", f"/private/row2?{query}", b"1\r\na\r\n0\r\n\r\n", headers), 400, 403)
    check(not stored("row2"), "it was stored")


@test
def row_4_an_unknown_streaming_mode_is_refused():
    headers = signed("PUT", "/private/row4", payload="STREAMING-SOMETHING-NEW")
    refused(send("PUT", "/private/row4", b"x", headers), 400, 403)
    check(not stored("row4"), "it was stored")


@test
def row_5_a_presigned_url_does_not_cover_headers_that_were_not_signed():
    url = S3.generate_presigned_url("put_object", Params={"Bucket": "private", "Key": "row5"})
    path = url[url.index("/private") :]
    refused(send("PUT", path, b"x", {"x-amz-copy-source": "/private/secret"}), 403)
    check(not stored("row5"), "it was stored")


@test
def row_6_two_ways_of_signing_at_once_are_refused():
    url = S3.generate_presigned_url("get_object", Params={"Bucket": "private", "Key": "secret"})
    path = url[url.index("/private") :]
    refused(send("GET", path, headers=signed("GET", "/private/secret")), 400)


@test
def row_9_a_signed_hash_binds_the_body():
    import hashlib

    headers = signed("PUT", "/private/row9", payload=hashlib.sha256(b"the signed body").hexdigest())
    refused(send("PUT", "/private/row9", b"a different one", headers), 400)
    check(not stored("row9"), "it was stored")


@test
def row_10_malformed_chunks_are_refused_and_nothing_is_stored():
    for chunks in (b"ffffffffffffffff\r\n", b"7fffffffffffffff\r\nabc", b"-1\r\n\r\n", b"+1\r\na\r\n0\r\n\r\n", b"1\na\r\n0\r\n\r\n", b"0" * 5000 + b"1\r\na\r\n0\r\n\r\n"):
        headers = signed("PUT", "/private/row10", payload="STREAMING-UNSIGNED-PAYLOAD-TRAILER", headers={"x-amz-decoded-content-length": "1", "content-encoding": "aws-chunked"})
        refused(send("PUT", "/private/row10", chunks, headers), 400, 411, 413)
    check(not stored("row10"), "it was stored")


@test
def row_11_a_decoded_length_that_does_not_match_is_refused():
    for length in ("0", "2", "1000"):
        headers = signed("PUT", "/private/row11", payload="STREAMING-UNSIGNED-PAYLOAD-TRAILER", headers={"x-amz-decoded-content-length": length})
        refused(send("PUT", "/private/row11", b"1\r\na\r\n0\r\n\r\n", headers), 400, 411)
    check(not stored("row11"), "it was stored")


@test
def row_12_a_wrong_trailing_checksum_stores_nothing():
    headers = signed("PUT", "/private/row12", payload="STREAMING-UNSIGNED-PAYLOAD-TRAILER", headers={"x-amz-decoded-content-length": "1", "x-amz-trailer": "x-amz-checksum-crc32"})
    refused(send("PUT", "/private/row12", b"1\r\na\r\n0\r\nx-amz-checksum-crc32:AAAAAA==\r\n\r\n", headers), 400)
    check(not stored("row12"), "it was stored")


@test
def row_15_nobody_may_do_anything_on_a_private_bucket():
    for method in ("GET", "HEAD", "PUT", "POST", "DELETE"):
        for path in ("/private", "/private/secret", "/private?versions", "/private/secret?uploads"):
            status, _ = send(method, path, b"")
            check(status in (400, 403, 405), f"{method} {path} is answered {status}")
    equal(S3.get_object(Bucket="private", Key="secret")["Body"].read(), b"secret body", "the object")


@test
def row_16_an_unknown_key_is_not_taken_for_nobody():
    refused(send("GET", "/private/secret", headers=signed("GET", "/private/secret", access="NOBODY")), 403)


@test
def row_17_conditions_of_a_stranger_tell_nothing():
    tag = S3.head_object(Bucket="private", Key="secret")["ETag"]
    refused(send("GET", "/private/secret", headers={"If-None-Match": tag}), 403)
    refused(send("GET", "/private/secret", headers={"If-Modified-Since": "Fri, 01 Jan 2100 00:00:00 GMT"}), 403)


@test
def row_22_keys_that_look_like_paths_stay_keys():
    for key in ("../other/x", "..\\x", "/lead", "a//b", "a/../b", "./.", "x."):
        S3.put_object(Bucket="private", Key=key, Body=key.encode())
        equal(S3.get_object(Bucket="private", Key=key)["Body"].read(), key.encode(), f"body of {key}")
    refused(send("PUT", "/private/a%00b", b"x", signed("PUT", "/private/a%00b")), 400)
    refused(send("PUT", "/private/a%ffb", b"x", signed("PUT", "/private/a%ffb")), 400)


@test
def row_26_a_copy_from_a_bucket_of_somebody_else_is_refused():
    answer, succeeded = SERVER.admin_command("user", "create", "stranger")
    check(succeeded, "no user was made")
    stranger = boto3_client(SERVER.endpoint, answer["access_key"], answer["secret_key"])
    stranger.create_bucket(Bucket="strangers")
    source = {"Bucket": "private", "Key": "secret"}
    equal(error_code(stranger.copy_object, Bucket="strangers", Key="k", CopySource=source)[0], 403, "status")
    equal(error_code(stranger.get_object, **source)[0], 403, "status of a GET")
    check("private" not in [bucket["Name"] for bucket in stranger.list_buckets()["Buckets"]], "a bucket of somebody else is listed")


@test
def row_28_an_empty_copy_source_is_a_bad_request():
    headers = {"x-amz-copy-source": ""}
    refused(send("PUT", "/private/row28", b"", signed("PUT", "/private/row28", headers=headers)), 400)


@test
def row_50_xml_bombs_are_refused_quickly():
    bombs = (b'<?xml version="1.0"?><!DOCTYPE a [<!ENTITY b "bbbb">]><Delete>&b;</Delete>', b"<a>" * 50_000, b"<Delete " + b" ".join(b'a%d="x"' % number for number in range(50_000)) + b"/>")
    for bomb in bombs:
        refused(send("POST", "/private?delete", bomb, signed("POST", "/private?delete", bomb)), 400, 413)


@test
def row_51_a_thousand_and_one_keys_are_too_many():
    objects = [{"Key": f"k{number}"} for number in range(1001)]
    equal(error_code(S3.delete_objects, Bucket="private", Delete={"Objects": objects})[0], 400, "status")


@test
def row_54_huge_heads_are_refused():
    for text in (b"GET / HTTP/1.1\r\nHost: x\r\nx: " + b"y" * (1 << 20) + b"\r\n\r\n", b"GET / HTTP/1.1\r\nHost: x\r\n" + b"a: b\r\n" * 10_000 + b"\r\n"):
        answer = raw(text)
        check(answer == b"" or answer.split(b" ")[1] in (b"400", b"431"), answer[:100])


@test
def row_57_smuggled_requests_never_run():
    for head in (b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n", b"Content-Length: 4\r\nContent-Length: 5\r\n", b"X: a\r\n b\r\n"):
        answer = raw(b"GET /private/secret HTTP/1.1\r\nHost: x\r\n" + head + b"\r\n0\r\n\r\nGET /private/secret HTTP/1.1\r\nHost: x\r\n\r\n")
        check(answer.count(b"HTTP/1.1 ") <= 1, f"two answers to {head!r}")
        check(answer == b"" or answer.split(b" ")[1] in (b"400", b"403", b"501"), answer[:100])


@test
def row_62_absurd_ranges_are_bounded():
    for value, statuses in (("bytes=" + ",".join(["0-1"] * 1000), (200, 400, 416)), ("bytes=0-", (206,)), ("bytes=-99999999999", (206,)), ("bytes=5-2", (200,)), ("bytes=99999999999999999999-", (200, 416))):
        headers = {"Range": value}
        status, body = send("GET", "/private/secret", headers=signed("GET", "/private/secret", headers=headers))
        check(status in statuses and len(body) < 1000, f"{value[:40]}: {status}, {len(body)} bytes")


@test
def row_66_malformed_percent_encoding_is_a_bad_request():
    for path in ("/private/%", "/private/%zz", "/private/a%2"):
        check(raw(f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode()).split(b" ")[1] in (b"400", b"403"), path)


@test
def row_72_secrets_on_disk_are_for_the_owner_only():
    loose = []
    for base, _, files in os.walk(SERVER.disks[0]):
        loose += [os.path.join(base, name) for name in files if os.stat(os.path.join(base, name)).st_mode & 0o077 and name == "credentials"]
    equal(loose, [], "files that others can read")


@test
def row_74_numbers_out_of_range_are_refused_or_bounded():
    for value, status in (("-1", 400), ("abc", 400), ("2147483647", 200), ("4294967297", 400), ("99999999999999999999", 400)):
        path = f"/private?list-type=2&max-keys={value}"
        found, _ = send("GET", path, headers=signed("GET", path))
        check(found == status, f"max-keys={value} is answered {found}")
    for number in ("0", "10001", "-1", "4294967297"):
        path = f"/private/k?partNumber={number}&uploadId=x"
        found, _ = send("PUT", path, b"x", signed("PUT", path))
        check(found in (400, 404), f"partNumber={number} is answered {found}")


@test
def row_67_the_log_holds_no_secret():
    with open(os.path.join(WORK, "server.log"), "rb") as file:
        log = file.read()
    check(SECRET.encode() not in log and b"secret body" not in log, "the log holds a secret")


@test
def the_server_has_survived_all_this():
    check(SERVER.process.poll() is None, "the server has ended")
    body = data(100_000)
    S3.put_object(Bucket="private", Key="after", Body=body)
    equal(S3.get_object(Bucket="private", Key="after")["Body"].read(), body, "body")


if __name__ == "__main__":
    try:
        main()
    finally:
        SERVER.stop(signal.SIGKILL)
