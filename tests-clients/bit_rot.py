"""Flipped bits in data files: another replica, or an aborted answer; never wrong bytes."""
import os
import random
import signal

from harness import WORK, Server, boto3_client, check, data, equal, main, test

SIZE = 3_000_000
COUNT = 12


def put_all(server):
    s3 = boto3_client(server.endpoint)
    s3.create_bucket(Bucket="rot")
    for number in range(COUNT):
        s3.put_object(Bucket="rot", Key=f"k{number}", Body=data(SIZE, number))


def files_with_payload(disk):
    """Files that hold a piece of an object as it was sent: data, not logs or tables."""
    needles = [data(SIZE, number)[1_500_000:1_500_064] for number in range(COUNT)]
    found = []
    for base, _, files in os.walk(disk):
        for name in files:
            path = os.path.join(base, name)
            with open(path, "rb") as file:
                content = file.read()
            places = [content.find(needle) for needle in needles]
            places = [place for place in places if place >= 0]
            if places:
                found.append((path, places))
    return found


def flip(disk, share):
    """Flips one bit in the middle of this share of all objects on a disk; returns how many."""
    flipped = 0
    for path, places in files_with_payload(disk):
        with open(path, "r+b") as file:
            for place in places[: max(1, int(len(places) * share))]:
                file.seek(place + random.Random(place).randrange(64))
                byte = file.read(1)[0]
                file.seek(-1, os.SEEK_CUR)
                file.write(bytes([byte ^ 0x10]))
                flipped += 1
    return flipped


def read(s3, number):
    """The body, or None when the answer was aborted or is an error."""
    try:
        return s3.get_object(Bucket="rot", Key=f"k{number}")["Body"].read()
    except Exception:  # any way to fail is allowed but one
        return None


@test
def with_one_copy_a_damaged_object_is_never_served():
    with Server(os.path.join(WORK, "one")) as server:
        put_all(server)
        server.stop(signal.SIGTERM)
        flipped = flip(server.disks[0], 0.5)
        check(flipped > 0, "no data was found on the disk to damage")
        server.start()
        s3 = boto3_client(server.endpoint)
        bodies = [read(s3, number) for number in range(COUNT)]
        wrong = [number for number, body in enumerate(bodies) if body is not None and body != data(SIZE, number)]
        equal(wrong, [], "objects served with wrong bytes")
        equal(sum(body is None for body in bodies), flipped, "objects refused")
        whole = next(number for number, body in enumerate(bodies) if body is None)
        early = s3.get_object(Bucket="rot", Key=f"k{whole}", Range="bytes=0-99")["Body"].read()
        equal(early, data(SIZE, whole)[:100], "a range that is not damaged")


@test
def with_two_copies_damage_is_masked_and_scrub_repairs_it():
    with Server(os.path.join(WORK, "two"), "--rf", "2", disks=2) as server:
        put_all(server)
        server.stop(signal.SIGTERM)
        check(flip(server.disks[0], 1.0) > 0, "no data was found on the first disk to damage")
        server.start()
        s3 = boto3_client(server.endpoint)
        for number in range(COUNT):
            equal(read(s3, number) == data(SIZE, number), True, f"object {number} is right")
        _, succeeded = server.admin_command("scrub")
        check(succeeded, "the scrub did not succeed")
        server.stop(signal.SIGTERM)
        # Now the other copies: only what the scrub repaired can answer.
        check(flip(server.disks[1], 1.0) > 0, "no data was found on the second disk to damage")
        server.start()
        s3 = boto3_client(server.endpoint)
        for number in range(COUNT):
            equal(read(s3, number) == data(SIZE, number), True, f"object {number} is right after the repair")


if __name__ == "__main__":
    main()
