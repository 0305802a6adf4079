"""minio-py."""
import io

from harness import ACCESS, ENDPOINT, REGION, SECRET, check, data, equal, main, new_bucket_name, test
from minio import Minio
from minio.commonconfig import CopySource
from minio.deleteobjects import DeleteObject

CLIENT = Minio(endpoint=ENDPOINT.removeprefix("http://"), access_key=ACCESS, secret_key=SECRET, region=REGION, secure=False)
BUCKET = new_bucket_name("minio")


def read(key, **options):
    answer = CLIENT.get_object(bucket_name=BUCKET, object_name=key, **options)
    try:
        return answer.read()
    finally:
        answer.close()
        answer.release_conn()


@test
def a_bucket_is_made():
    CLIENT.make_bucket(bucket_name=BUCKET)
    check(CLIENT.bucket_exists(bucket_name=BUCKET), "the bucket does not exist")


@test
def objects_go_up_and_down_whole_and_in_parts():
    for size in (0, 5, 300_000, 11 << 20):
        body = data(size, size)
        CLIENT.put_object(bucket_name=BUCKET, object_name=f"o/{size}", data=io.BytesIO(body), length=size)
        equal(read(f"o/{size}"), body, f"body of {size} bytes")
    body = data(12 << 20, 1)
    CLIENT.put_object(bucket_name=BUCKET, object_name="o/unknown", data=io.BytesIO(body), length=-1, part_size=5 << 20)
    equal(read("o/unknown"), body, "body of unknown length")
    equal(read("o/unknown", offset=5_000_000, length=77), body[5_000_000:5_000_077], "range")


@test
def a_copy_and_a_listing():
    CLIENT.copy_object(bucket_name=BUCKET, object_name="copy", source=CopySource(bucket_name=BUCKET, object_name="o/300000"))
    equal(read("copy"), data(300_000, 300_000), "the copy")
    names = {entry.object_name for entry in CLIENT.list_objects(bucket_name=BUCKET)}
    equal(names, {"copy", "o/"}, "listing by delimiter")


@test
def everything_is_removed_with_the_bucket():
    names = [DeleteObject(name=entry.object_name) for entry in CLIENT.list_objects(bucket_name=BUCKET, recursive=True)]
    equal(list(CLIENT.remove_objects(bucket_name=BUCKET, delete_object_list=names)), [], "errors")
    CLIENT.remove_bucket(bucket_name=BUCKET)


if __name__ == "__main__":
    main()
