"""Delta Lake on conditional PUT: writers that race, without a lock service."""
import threading

from harness import ACCESS, ENDPOINT, REGION, SECRET, boto3_client, equal, main, new_bucket_name, test

BUCKET = new_bucket_name("delta")
TABLE = f"s3://{BUCKET}/table"
OPTIONS = {
    "AWS_ACCESS_KEY_ID": ACCESS,
    "AWS_SECRET_ACCESS_KEY": SECRET,
    "AWS_REGION": REGION,
    "AWS_ENDPOINT_URL": ENDPOINT,
    "AWS_ALLOW_HTTP": "true",
    "conditional_put": "etag",
    "aws_conditional_put": "etag",
}


def batch(first):
    import pyarrow as pa

    return pa.table({"id": pa.array(range(first, first + 100), pa.int64())})


@test
def a_table_is_made_and_appended_to():
    from deltalake import DeltaTable, write_deltalake

    boto3_client().create_bucket(Bucket=BUCKET)
    write_deltalake(TABLE, batch(0), storage_options=OPTIONS)
    write_deltalake(TABLE, batch(100), mode="append", storage_options=OPTIONS)
    equal(DeltaTable(TABLE, storage_options=OPTIONS).version(), 1, "version")


@test
def eight_racing_writers_lose_no_row():
    from deltalake import DeltaTable, write_deltalake

    errors = []

    def append(number):
        try:
            write_deltalake(TABLE, batch(1000 + number * 100), mode="append", storage_options=OPTIONS)
        except Exception as error:
            errors.append(str(error))

    threads = [threading.Thread(target=append, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    equal(errors, [], "errors of writers")
    table = DeltaTable(TABLE, storage_options=OPTIONS)
    equal(table.version(), 9, "version")
    ids = sorted(table.to_pyarrow_table()["id"].to_pylist())
    equal(ids, list(range(200)) + list(range(1000, 1800)), "rows")


@test
def an_old_version_can_be_read():
    from deltalake import DeltaTable

    equal(DeltaTable(TABLE, version=0, storage_options=OPTIONS).to_pyarrow_table().num_rows, 100, "rows of version 0")


if __name__ == "__main__":
    main()
