"""restic: init, backup, check of all data, restore, forget with prune."""
import os

from harness import ACCESS, ENDPOINT, REGION, SECRET, WORK, equal, main, new_bucket_name, run, test, tree, write_tree

SOURCE, BACK = os.path.join(WORK, "source"), os.path.join(WORK, "back")
ENV = {
    "AWS_ACCESS_KEY_ID": ACCESS,
    "AWS_SECRET_ACCESS_KEY": SECRET,
    "AWS_DEFAULT_REGION": REGION,
    "RESTIC_REPOSITORY": f"s3:{ENDPOINT}/{new_bucket_name('restic')}",
    "RESTIC_PASSWORD": "only a test",
    "RESTIC_CACHE_DIR": os.path.join(WORK, "cache"),
}


def restic(*words):
    return run("restic", *words, env=ENV)


@test
def a_repository_is_made_and_a_folder_backed_up():
    write_tree(SOURCE, [0, 9, 500_000, 3 << 20, 25 << 20, 11])
    restic("init")
    restic("backup", SOURCE)


@test
def all_stored_data_are_sound():
    restic("check", "--read-data")


@test
def a_restore_brings_every_file_back():
    restic("restore", "latest", "--target", BACK)
    equal(tree(BACK + SOURCE), tree(SOURCE), "what came back")


@test
def a_second_backup_lets_the_first_be_forgotten():
    with open(os.path.join(SOURCE, "new"), "wb") as file:
        file.write(b"new" * 100_000)
    restic("backup", SOURCE)
    restic("forget", "--keep-last", "1", "--prune")
    restic("check", "--read-data")


if __name__ == "__main__":
    main()
