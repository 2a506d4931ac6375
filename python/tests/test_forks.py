"""Forked processes read the right bytes while threads of their parent are at work."""

import io
import os
import random
import signal
import subprocess
import sys
import threading

import pytest

import libpz as pz

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork"),
    pytest.mark.filterwarnings("ignore:This process:DeprecationWarning"),
]

SERVER = """
import http.server, os, sys
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        with open("." + self.path, "rb") as file:
            data = file.read()
        first, last = self.headers["Range"].removeprefix("bytes=").split("-")
        first, last = int(first), min(int(last), len(data) - 1)
        self.send_response(206)
        self.send_header("Content-Range", f"bytes {first}-{last}/{len(data)}")
        self.send_header("Content-Length", str(last - first + 1))
        self.end_headers()
        self.wfile.write(data[first : last + 1])
    def log_message(self, *_):
        pass
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
print(server.server_port, flush=True)
server.serve_forever()
"""

LARGE = b"".join(b"line %d %d\n" % (i, i * i % 977) for i in range(40_000))
FILES = 40


def small(number):
    """Contents of one length, so that mixed-up connections show only in the bytes."""
    return b"sample %03d " % number * 50


@pytest.fixture
def url(tmp_path):
    (tmp_path / "large.pz").write_bytes(pz.compress(LARGE, block_size=1 << 16))
    for number in range(FILES):
        (tmp_path / f"{number}.pz").write_bytes(pz.compress(small(number)))
    command = [sys.executable, "-c", SERVER]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as server:
        assert server.stdout is not None
        yield f"http://127.0.0.1:{int(server.stdout.readline())}"
        server.kill()


def fork(work):
    """Run `work` in a child, which has a minute; return the child's number."""
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(60)
        try:
            work()
            os._exit(0)
        except BaseException as error:  # noqa: BLE001
            os.write(2, f"in a child: {error!r}\n".encode())
        finally:
            os._exit(1)
    return child


def join(child):
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_children_read_their_own_answers(url):
    reader = pz._libpz.Reader(f"{url}/large.pz")
    archive = pz._libpz.Archive(f"{url}/large.pz")

    def read(number):
        start = random.randrange(len(LARGE) - 5000)
        assert reader.read_bytes(start, 5000) == LARGE[start : start + 5000]
        part = bytearray(3000)
        archive.read_into([(start, part)])
        assert part == LARGE[start : start + 3000]
        with pz.open(f"{url}/{number % FILES}.pz") as file:
            assert file.read() == small(number % FILES)

    stop, failed = threading.Event(), []

    def work(seed):
        try:
            while not stop.is_set():
                read(seed)
                seed += 1
        except Exception as error:  # noqa: BLE001
            failed.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    try:
        for round in range(40):
            for child in [fork(lambda n=n: [read(m) for m in range(n, n + 3)]) for n in range(round, round + 5)]:
                join(child)
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert not failed


def test_positions_of_file_objects_are_the_parents():
    data = io.BytesIO(pz.compress(LARGE, block_size=1 << 16))
    reader, archive = pz._libpz.Reader(data), pz._libpz.Archive(data)
    assert reader.read_bytes(0, 10) == LARGE[:10]

    def work():
        with pytest.raises(pz.InUseError, match="before a fork"):
            reader.read_bytes(0, 10)
        with pytest.raises(pz.InUseError, match="before a fork"):
            archive.read_into([(0, bytearray(10))])
        with pz.open(io.BytesIO(data.getvalue())) as file:
            assert file.read() == LARGE

    join(fork(work))
    assert reader.read_bytes(0, 10) == LARGE[:10]
