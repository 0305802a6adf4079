"""pyarrow and polars write and read Parquet."""
from harness import ACCESS, ENDPOINT, REGION, SECRET, boto3_client, equal, main, new_bucket_name, test

BUCKET = new_bucket_name("parquet")
ROWS = 200_000


@test
def pyarrow_writes_a_partitioned_data_set_and_reads_a_part_of_it():
    import pyarrow as pa
    import pyarrow.dataset as ds
    from pyarrow.fs import S3FileSystem

    boto3_client().create_bucket(Bucket=BUCKET)
    files = S3FileSystem(access_key=ACCESS, secret_key=SECRET, endpoint_override=ENDPOINT.removeprefix("http://"), scheme="http", region=REGION, force_virtual_addressing=False)
    table = pa.table({"group": [number % 4 for number in range(ROWS)], "value": list(range(ROWS))})
    ds.write_dataset(table, f"{BUCKET}/set", filesystem=files, format="parquet", partitioning=["group"])
    found = ds.dataset(f"{BUCKET}/set", filesystem=files, format="parquet", partitioning=["group"])
    part = found.to_table(filter=ds.field("group") == 3, columns=["value"])
    equal(sum(part["value"].to_pylist()), sum(range(3, ROWS, 4)), "sum of one group")


@test
def polars_scans_what_pyarrow_wrote():
    import polars as pl

    options = {"aws_access_key_id": ACCESS, "aws_secret_access_key": SECRET, "aws_region": REGION, "aws_endpoint_url": ENDPOINT, "aws_allow_http": "true"}
    scan = pl.scan_parquet(f"s3://{BUCKET}/set/**/*.parquet", storage_options=options, hive_partitioning=False)
    equal(scan.select(pl.col("value").sum()).collect().item(), sum(range(ROWS)), "sum of all")


@test
def polars_writes_a_file_and_reads_it_back():
    import polars as pl

    options = {"aws_access_key_id": ACCESS, "aws_secret_access_key": SECRET, "aws_region": REGION, "aws_endpoint_url": ENDPOINT, "aws_allow_http": "true"}
    frame = pl.DataFrame({"a": list(range(ROWS)), "b": [str(number) for number in range(ROWS)]})
    frame.write_parquet(f"s3://{BUCKET}/one.parquet", storage_options=options)
    equal(pl.read_parquet(f"s3://{BUCKET}/one.parquet", storage_options=options).equals(frame), True, "the frame")


if __name__ == "__main__":
    main()
