"""What the test programs share: counting, data, servers, running other programs.

Promises: a test that raises is a failure with its reason; the last line is 'N passed, N failed, N skipped'.
Refuses to know: S3.
"""
import contextlib
import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid

ENDPOINT = os.environ.get("ENDPOINT", "")
ACCESS = os.environ.get("ACCESS", "ASHLARBLACKBOX000000")
SECRET = os.environ.get("SECRET", "not-a-secret-it-guards-only-test-data-02")
REGION = "us-east-1"
# Without this a client would go and look for its vendor's own service.
if "ASHLAR" not in os.environ and not ENDPOINT.startswith(("http://127.0.0.1:", "http://localhost:")):
    sys.exit("ENDPOINT must be http://127.0.0.1:PORT")

# Settings of the person who runs this must not reach the clients.
for name in [name for name in os.environ if name.startswith("AWS_")]:
    del os.environ[name]
os.environ["AWS_EC2_METADATA_DISABLED"] = "true"

WORK = tempfile.mkdtemp(prefix="t-", dir=os.environ.get("WORK") or None)


class Skip(Exception):
    """Raised by a test that cannot run here."""


TESTS = []


def test(function):
    """Registers a test; its name is the function's, in words."""
    TESTS.append(function)
    return function


def main():
    """Runs all registered tests in order and exits."""
    counts = {"passed": 0, "failed": 0, "skipped": 0}
    for function in TESTS:
        name = function.__name__.replace("_", " ")
        try:
            function()
        except Skip as reason:
            counts["skipped"] += 1
            print(f"skip {name}: {reason}", flush=True)
        except Exception as error:  # whatever a client raises is the test's result
            counts["failed"] += 1
            print(f"FAIL {name}: {type(error).__name__}: {str(error)[:1500]}", flush=True)
            tell_servers_words()
        else:
            counts["passed"] += 1
            print(f"ok {name}", flush=True)
    print(", ".join(f"{count} {word}" for word, count in counts.items()), flush=True)
    sys.exit(1 if counts["failed"] else 0)


def tell_servers_words(lines=10):
    """Prints what servers under test said last, but routine: where this runs unseen, it is all that is left to look at."""
    for log in (os.path.join(WORK, "server.log"), os.path.join(os.path.dirname(WORK), "server.log")):
        if os.path.exists(log):
            with open(log, errors="replace") as file:
                words = [line.rstrip()[:500] for line in file if '"level":"INFO"' not in line]
            print("\n".join([f"  {log}: {len(words)} lines", *(f"    {line}" for line in words[-lines:])]), flush=True)


def equal(found, expected, what="value"):
    """Fails unless both are equal."""
    if found != expected:
        raise AssertionError(f"{what}: found {found!r:.300}, expected {expected!r:.300}")


def check(condition, what):
    """Fails unless the condition holds."""
    if not condition:
        raise AssertionError(what)


def data(size, seed=0):
    """Bytes that depend on the seed only."""
    return random.Random(seed).randbytes(size)


def digest(path):
    """SHA-256 of a file."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def new_bucket_name(word):
    return f"{word}-{uuid.uuid4().hex[:12]}"


def write_tree(folder, sizes):
    """Writes a file of each size, some in folders and with awkward names; returns the digest of each by relative path."""
    names = {}
    for number, size in enumerate(sizes):
        relative = f"dir {number % 3}/sub+{number % 2}/file-ü-{number}.bin" if number % 2 else f"plain-{number}.bin"
        path = os.path.join(folder, relative)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(data(size, number))
        names[relative] = digest(path)
    return names


def tree(folder):
    """The digest of each file below a folder by relative path."""
    found = {}
    for base, _, files in os.walk(folder):
        for file in files:
            path = os.path.join(base, file)
            found[os.path.relpath(path, folder)] = digest(path)
    return found


def run(*words, env=None, fails=False, stdin=None):
    """Runs a program and returns its output; fails if it does, or if it does not although it should."""
    result = subprocess.run(words, env={**os.environ, **(env or {})}, input=stdin, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=300)
    text = result.stdout.decode(errors="replace")
    if (result.returncode != 0) != fails:
        raise AssertionError(f"{' '.join(words)} ended with {result.returncode}: {text[-1200:]}")
    return text


def boto3_client(endpoint=None, access=None, secret=None, **config):
    """A boto3 client with its present defaults."""
    import boto3
    from botocore.config import Config

    settings = {"s3": {"addressing_style": "path"}, "retries": {"max_attempts": 0}, **config}
    return boto3.client("s3", endpoint_url=endpoint or ENDPOINT, aws_access_key_id=access or ACCESS, aws_secret_access_key=secret or SECRET, region_name=REGION, config=Config(**settings))


def error_code(call, *args, **kwargs):
    """Status and code of the error that a boto3 call must raise."""
    from botocore.exceptions import ClientError

    try:
        call(*args, **kwargs)
    except ClientError as error:
        return error.response["ResponseMetadata"]["HTTPStatusCode"], error.response["Error"]["Code"]
    raise AssertionError("the call succeeded although it must not")


class Server:
    """An `ashlar server` of the test's own."""

    def __init__(self, folder, *options, disks=1):
        self.folder, self.options = folder, options
        self.disks = [os.path.join(folder, f"disk{number}") for number in range(disks)]
        self.process = self.balancer = None

    def start(self):
        words = [os.environ["ASHLAR"], "server", "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0", "--json", *self.options]
        for disk in self.disks:
            words += ["--data-dir", disk]
        log = open(os.path.join(WORK, "server.log"), "ab")
        self.process = subprocess.Popen(words, env=self.environment(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log)
        line = self.process.stdout.readline()
        try:
            ready = json.loads(line)
        except ValueError:
            self.process.kill()
            raise AssertionError(f"the server did not say that it is ready; see {WORK}/server.log") from None
        self.endpoint = "http://" + ready["endpoint"].removeprefix("http://")
        self.admin = "http://" + ready["admin"].removeprefix("http://")
        if os.environ.get("BALANCED"):
            self.stand_behind_balancer(log)
        return self

    def stand_behind_balancer(self, log):
        """Clients are given the address of a balancer in front of the server."""
        node = ",".join(address.removeprefix("http://") for address in (self.endpoint, self.admin))
        words = [os.environ["ASHLAR"], "balancer", "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0", "--json", "--node", node]
        self.balancer = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log)
        self.endpoint = json.loads(self.balancer.stdout.readline())["endpoint"]

    @staticmethod
    def environment():
        return {**os.environ, "ASHLAR_ROOT_ACCESS_KEY": ACCESS, "ASHLAR_ROOT_SECRET_KEY": SECRET}

    def admin_command(self, *words):
        """`ashlar admin WORDS --json`: its answer and whether it succeeded."""
        command = [os.environ["ASHLAR"], "admin", *words, "--admin", self.admin.removeprefix("http://"), "--json"]
        result = subprocess.run(command, env=self.environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=300)
        try:
            return json.loads(result.stdout or b"null"), result.returncode == 0
        except ValueError:
            raise AssertionError(f"ashlar admin {' '.join(words)}: {result.stderr.decode(errors='replace')[-500:]}") from None

    def stop(self, how=signal.SIGTERM):
        if self.balancer and self.balancer.poll() is None:
            self.balancer.kill()
            self.balancer.wait(timeout=60)
        if self.process and self.process.poll() is None:
            self.process.send_signal(how)
            self.process.wait(timeout=60)

    def __enter__(self):
        return self.start()

    def __exit__(self, *_):
        self.stop(signal.SIGKILL)


def eventually(condition, seconds=60, what="the condition"):
    """Waits until the condition holds; fails when it does not in time."""
    deadline = time.monotonic() + seconds
    while not condition():
        check(time.monotonic() < deadline, f"{what} did not come true within {seconds} s")
        time.sleep(0.1)


@contextlib.contextmanager
def small_disk(megabytes):
    """A file system of this size, or a skip where none can be mounted."""
    folder = tempfile.mkdtemp(prefix="disk-", dir=WORK)
    result = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", folder], stderr=subprocess.PIPE)
    if result.returncode != 0:
        raise Skip(f"cannot mount a small file system: {result.stderr.decode(errors='replace').strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", folder], check=True)
        shutil.rmtree(folder, ignore_errors=True)
