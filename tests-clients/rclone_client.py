"""rclone: copy, sync, check, move, purge."""
import os

from harness import ACCESS, ENDPOINT, REGION, SECRET, WORK, check, equal, main, new_bucket_name, run, test, tree, write_tree

BUCKET = new_bucket_name("rclone")
REMOTE = f"it:{BUCKET}"
SOURCE, BACK = os.path.join(WORK, "source"), os.path.join(WORK, "back")
ENV = {
    "RCLONE_CONFIG": os.path.join(WORK, "no-such-file"),
    "RCLONE_CONFIG_IT_TYPE": "s3",
    "RCLONE_CONFIG_IT_PROVIDER": "Other",
    "RCLONE_CONFIG_IT_ENDPOINT": ENDPOINT,
    "RCLONE_CONFIG_IT_REGION": REGION,
    "RCLONE_CONFIG_IT_ACCESS_KEY_ID": ACCESS,
    "RCLONE_CONFIG_IT_SECRET_ACCESS_KEY": SECRET,
    "RCLONE_S3_UPLOAD_CUTOFF": "8M",
    # Notices carry the time and would stand among the lines that are compared.
    "RCLONE_LOG_LEVEL": "ERROR",
}


def rclone(*words, **options):
    return run("rclone", *words, env=ENV, **options)


@test
def a_folder_is_copied_and_checked():
    write_tree(SOURCE, [0, 7, 100_000, 1 << 20, 19 << 20, 3, 64])
    rclone("mkdir", REMOTE)
    rclone("copy", SOURCE, REMOTE + "/tree")
    rclone("check", SOURCE, REMOTE + "/tree")
    rclone("check", "--download", SOURCE, REMOTE + "/tree")


@test
def a_sync_removes_and_replaces():
    os.remove(os.path.join(SOURCE, "plain-0.bin"))
    with open(os.path.join(SOURCE, "plain-2.bin"), "wb") as file:
        file.write(b"changed")
    rclone("check", SOURCE, REMOTE + "/tree", fails=True)
    rclone("sync", SOURCE, REMOTE + "/tree")
    rclone("check", SOURCE, REMOTE + "/tree")


@test
def a_copy_within_the_server_and_back_to_disk():
    rclone("copy", REMOTE + "/tree", REMOTE + "/second")
    rclone("copy", REMOTE + "/second", BACK)
    equal(tree(BACK), tree(SOURCE), "what came back")


@test
def modification_times_are_kept():
    listed = rclone("lsl", REMOTE + "/tree")
    rclone("copy", SOURCE, REMOTE + "/tree")
    equal(sorted(rclone("lsl", REMOTE + "/tree").splitlines()), sorted(listed.splitlines()), "a second copy changed something")


@test
def everything_is_removed_with_the_bucket():
    rclone("purge", REMOTE)
    check(BUCKET not in rclone("lsd", "it:"), "the bucket is still there")


if __name__ == "__main__":
    main()
