"""s3cmd: put, get, sync, du, del."""
import os

from harness import ACCESS, ENDPOINT, SECRET, WORK, check, equal, main, new_bucket_name, run, test, tree, write_tree

BUCKET = new_bucket_name("s3cmd")
HOST = ENDPOINT.removeprefix("http://")
CONFIG = os.path.join(WORK, "s3cfg")
with open(CONFIG, "w") as file:
    file.write(f"[default]\naccess_key = {ACCESS}\nsecret_key = {SECRET}\nhost_base = {HOST}\nhost_bucket = {HOST}\nuse_https = False\nsignature_v2 = False\nbucket_location = us-east-1\n")


def s3cmd(*words):
    return run("s3cmd", "--config", CONFIG, "--no-progress", *words)


@test
def a_bucket_is_made_and_a_folder_synced_there_and_back():
    s3cmd("mb", f"s3://{BUCKET}")
    source, back = os.path.join(WORK, "source"), os.path.join(WORK, "back")
    files = write_tree(source, [0, 1, 200_000, 17 << 20, 33])
    os.makedirs(back)
    s3cmd("sync", source + "/", f"s3://{BUCKET}/tree/")
    s3cmd("sync", f"s3://{BUCKET}/tree/", back + "/")
    equal(tree(back), files, "what came back")


@test
def usage_and_information_are_told():
    check("5 objects" in s3cmd("du", f"s3://{BUCKET}/tree/"), "du does not count 5 objects")
    check("File size: 200000" in s3cmd("info", f"s3://{BUCKET}/tree/plain-2.bin"), "info does not tell the size")


@test
def a_copy_and_a_move_within_the_bucket():
    s3cmd("cp", f"s3://{BUCKET}/tree/plain-2.bin", f"s3://{BUCKET}/copied")
    s3cmd("mv", f"s3://{BUCKET}/copied", f"s3://{BUCKET}/moved")
    check("moved" in s3cmd("ls", f"s3://{BUCKET}/"), "the moved object is not listed")


@test
def everything_is_removed_with_the_bucket():
    s3cmd("rb", "--recursive", "--force", f"s3://{BUCKET}")
    check(BUCKET not in s3cmd("ls"), "the bucket is still there")


if __name__ == "__main__":
    main()
