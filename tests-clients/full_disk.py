"""A full disk: refused before the acknowledgement, reads and deletes go on, freed space is used again without a restart."""
from harness import Server, boto3_client, check, data, equal, eventually, main, small_disk, test

# Small enough that log and memtables have to follow the disk.
MEGABYTES = 256
CHUNK = 4 << 20


def status_of(call, **words):
    """200, or the status of the error."""
    from botocore.exceptions import ClientError

    try:
        call(**words)
    except ClientError as error:
        return error.response["ResponseMetadata"]["HTTPStatusCode"]
    return 200


def fill(s3, prefix, size, most=2000):
    """Puts objects until one is refused; returns the accepted keys and the refusal's status."""
    keys = []
    for number in range(most):
        key = f"{prefix}/{number:05}"
        status = status_of(s3.put_object, Bucket="full", Key=key, Body=data(size, number))
        if status != 200:
            return keys, status
        keys.append(key)
    raise AssertionError(f"{most} objects of {size} bytes were accepted by a disk of {MEGABYTES} MB")


def verify(s3, keys, size):
    for number, key in enumerate(keys):
        equal(s3.get_object(Bucket="full", Key=key)["Body"].read(), data(size, number), f"body of {key}")


def exercise(size, prefix):
    with small_disk(MEGABYTES) as folder, Server(folder + "/store") as server:
        s3 = boto3_client(server.endpoint)
        s3.create_bucket(Bucket="full")
        keys, status = fill(s3, prefix, size)
        check(status in (507, 503), f"a full disk is answered {status}")
        check(keys, "nothing was accepted at all")
        verify(s3, keys, size)
        refused = s3.list_objects_v2(Bucket="full", Prefix=f"{prefix}/{len(keys):05}")
        equal(refused["KeyCount"], 0, "a refused object is listed")
        half = len(keys) // 2
        for key in keys[half:]:
            s3.delete_object(Bucket="full", Key=key)
        again = lambda: status_of(s3.put_object, Bucket="full", Key="again", Body=data(size, 7)) == 200
        eventually(again, 90, "a PUT after half of the objects were deleted")
        equal(s3.get_object(Bucket="full", Key="again")["Body"].read(), data(size, 7), "the object put again")
        server.stop()
        server.start()
        s3 = boto3_client(server.endpoint)
        verify(s3, keys[:half], size)
        equal(s3.get_object(Bucket="full", Key="again")["Body"].read(), data(size, 7), "the object put again, after a restart")


@test
def large_objects_fill_the_disk_and_space_comes_back():
    exercise(CHUNK, "large")


@test
def a_store_that_was_killed_when_full_starts_and_serves():
    import signal

    with small_disk(MEGABYTES) as folder, Server(folder + "/store") as server:
        s3 = boto3_client(server.endpoint)
        s3.create_bucket(Bucket="full")
        keys, _ = fill(s3, "killed", CHUNK)
        server.stop(signal.SIGKILL)
        server.start()
        s3 = boto3_client(server.endpoint)
        verify(s3, keys, CHUNK)
        s3.delete_objects(Bucket="full", Delete={"Objects": [{"Key": key} for key in keys]})
        eventually(lambda: status_of(s3.put_object, Bucket="full", Key="k", Body=data(CHUNK, 1)) == 200, 90, "a PUT after all was deleted")


if __name__ == "__main__":
    main()
