"""Files by path: reading, writing, lists, and recovery of damaged files."""

import gc
import io
import os
import pathlib
import threading

import pytest

import libpz as pz

LINES = [f"line {number} of a file\n" for number in range(60_000)]
CONTENTS = "".join(LINES).encode()
BLOCKS = {"block_size": 1 << 16}


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "lines.pz"
    with pz.open(path, "wb", 1, **BLOCKS) as file:
        file.write(CONTENTS)
    return path


def test_bytes(path):
    with pz.open(path) as file:
        assert isinstance(file, io.BufferedReader)
        assert (file.readable(), file.seekable(), file.writable()) == (True, True, False)
        assert file.name == str(path) and file.mode == "rb"
        assert file.read() == CONTENTS
        assert file.read(1) == b""
    with pz.open(path) as file:
        assert b"".join(iter(lambda: file.read(7001), b"")) == CONTENTS
    with pz.open(path) as file:
        assert [line.decode() for line in file] == LINES


def test_text(tmp_path):
    path = tmp_path / "text.pz"
    with pz.open(path, "wt", encoding="utf-16-le", newline="\r\n") as file:
        file.writelines(LINES)
    with pz.open(path, "rt", encoding="utf-16-le") as file:
        assert file.readlines() == LINES
    with pz.open(path, "rt", encoding="utf-16-le", newline="") as file:
        assert file.readline() == LINES[0].replace("\n", "\r\n")


def test_any_range(path):
    with pz.open(path) as file:
        for offset in (0, 1, 65_535, 65_536, 500_000, len(CONTENTS) - 5):
            file.seek(offset)
            assert file.read(100) == CONTENTS[offset : offset + 100]
        assert file.seek(-10, os.SEEK_END) == len(CONTENTS) - 10
        assert file.read() == CONTENTS[-10:]
        assert file.seek(len(CONTENTS) + 1000) == len(CONTENTS) + 1000
        assert file.read() == b""
        with pytest.raises(ValueError):
            file.raw.seek(-1)
    with pz.FileReader(path) as raw:
        buffer = bytearray(len(CONTENTS) + 7)
        assert raw.readinto(buffer) == len(CONTENTS)
        assert buffer[: len(CONTENTS)] == CONTENTS


@pytest.mark.parametrize("block_size", [1 << 16, 1 << 22])
def test_ranges_of_many_blocks(tmp_path, block_size):
    contents = CONTENTS * 12
    path = tmp_path / "many.pz"
    path.write_bytes(pz.compress(contents, block_size=block_size))
    with pz.FileReader(path) as raw:
        for offset, length in [(0, 1 << 20), (5, 3 << 20), (1 << 22, 9 << 20), (100_000, 1 << 19)]:
            buffer = bytearray(length)
            raw.seek(offset)
            assert raw.readinto(buffer) == length
            assert buffer == contents[offset : offset + length]


def test_exclusive(path):
    with pytest.raises(FileExistsError):
        pz.open(path, "xb")
    with pytest.raises(pz.OptionError):
        pz.open(path, "wb", 17)
    # Neither call has touched the file.
    assert pz.open(path).read() == CONTENTS


@pytest.mark.parametrize("mode", ["r+b", "abx", "rw", "", "rtb", "q"])
def test_unknown_modes(path, mode):
    with pytest.raises(pz.OptionError, match="mode"):
        pz.open(path, mode)


def test_append(path, tmp_path):
    new = tmp_path / "new.pz"
    for number in range(3):
        with pz.open(new, "at", encoding="utf-8", level=1 + number) as file:
            file.write(f"line {number}\n")
    assert pz.open(new).read() == b"line 0\nline 1\nline 2\n"
    assert [frame.level for frame in pz.list(new)] == [1, 2, 3]
    with pz.open(path, "ab") as file:
        file.write(b"at the end")
    assert pz.open(path).read() == CONTENTS + b"at the end"
    # Appends to a file object at its current position.
    target = io.BytesIO(pz.compress(b"first, "))
    with pz.open(target, "ab") as file:
        file.write(b"second")
    assert pz.decompress(target.getvalue()) == b"first, second"


def test_zeros_behind_a_file_mean_nothing(path):
    padded = path.read_bytes() + bytes(10240)
    path.write_bytes(padded)
    assert pz.decompress(padded) == CONTENTS
    assert pz.list(path)[0].content_size == len(CONTENTS)
    with pz.open(path) as file:
        file.seek(-5, io.SEEK_END)
        assert file.read() == CONTENTS[-5:]
    # The appended frame takes the place of the zeros.
    with pz.open(path, "ab") as file:
        file.write(b"at the end")
    assert pz.open(path).read() == CONTENTS + b"at the end"


def test_append_to_what_nothing_would_be_read_behind(path):
    path.with_name("plain").write_bytes(b"plain text, not compressed")
    path.with_name("cut.pz").write_bytes(path.read_bytes()[:-5])
    for name, error in (("plain", pz.NotPzError), ("cut.pz", pz.TruncatedError)):
        before = path.with_name(name).read_bytes()
        with pytest.raises(error):
            pz.open(path.with_name(name), "ab")
        assert path.with_name(name).read_bytes() == before


def test_missing_files(tmp_path):
    with pytest.raises(FileNotFoundError) as caught:
        pz.open(tmp_path / "none.pz")
    assert caught.value.filename.endswith("none.pz")
    with pytest.raises(IsADirectoryError):
        pz.list(tmp_path)
    with pytest.raises(FileNotFoundError):
        pz.list(tmp_path / "none.pz")
    with pytest.raises(TypeError):
        pz.open(3.5)
    (tmp_path / "plain").write_bytes(b"plain text")
    with pytest.raises(pz.NotPzError):
        pz.open(tmp_path / "plain")


def test_closed_files(path):
    file = pz.open(path)
    raw = file.raw
    file.close()
    file.close()
    for call in (
        file.read,
        raw.readall,
        lambda: raw.readinto(bytearray(5)),
        raw.tell,
        lambda: raw.seek(0),
        raw.seekable,
    ):
        with pytest.raises(ValueError, match="closed"):
            call()
    writer = pz.FileWriter(io.BytesIO())
    writer.close()
    writer.close()
    for call in (lambda: writer.write(b"x"), writer.flush, writer.tell, writer.writable):
        with pytest.raises(ValueError, match="closed"):
            call()


def test_flush_brings_everything_to_the_file():
    target = io.BytesIO()
    with pz.FileWriter(target) as writer:
        writer.write(b"so far")
        writer.flush()
        assert pz.decompress(target.getvalue()) == b"so far"
        writer.write(b", and on")
    assert pz.decompress(target.getvalue()) == b"so far, and on"


def test_a_pipe():
    source, target = os.pipe()

    def write():
        with os.fdopen(target, "wb") as pipe, pz.open(pipe, "wb", **BLOCKS) as file:
            file.write(CONTENTS)

    thread = threading.Thread(target=write)
    thread.start()
    with os.fdopen(source, "rb") as pipe, pz.open(pipe) as file:
        assert not file.seekable()
        with pytest.raises(io.UnsupportedOperation):
            file.raw.seek(0)
        assert file.read() == CONTENTS
    thread.join()


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes on this system")
def test_a_named_pipe(tmp_path):
    name = tmp_path / "fifo"
    os.mkfifo(name)
    thread = threading.Thread(target=lambda: name.write_bytes(pz.compress(CONTENTS)))
    thread.start()
    with pz.open(name) as file:
        assert file.read() == CONTENTS
    thread.join()


def test_threads_read_one_file(path):
    raw = pz.FileReader(path)
    failed = []

    def work(seed):
        for step in range(40):
            offset = (seed * 7919 + step * 104_729) % (len(CONTENTS) - 100)
            buffer = bytearray(100)
            raw._reader.read_into(offset, buffer)
            if buffer != CONTENTS[offset : offset + 100]:
                failed.append(offset)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed


class Pipe(io.BytesIO):
    """A file object that does not seek."""

    def seekable(self):
        return False


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_fork(path, tmp_path):
    raw = pz.FileReader(path)
    raw.readinto(bytearray(10))
    written = tmp_path / "written.pz"
    writer = pz.FileWriter(written, **BLOCKS)
    writer.write(CONTENTS)  # starts threads
    stream = pz.FileReader(Pipe(path.read_bytes()))
    child = os.fork()
    if child == 0:
        try:
            right = raw.readall() == CONTENTS[10:]
            for call in (lambda: writer.write(b"x"), lambda: stream.readinto(bytearray(5))):
                try:
                    call()
                    right = False
                except pz.InUseError:
                    pass
            # Only the parent may end the file.
            writer.close()
            del writer, stream, raw
            gc.collect()
            os._exit(0 if right else 1)
        finally:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    writer.close()
    assert pz.open(written).read() == CONTENTS


def test_collected_writers_end_their_files(tmp_path):
    path = tmp_path / "collected.pz"
    file = pz.open(path, "wb")
    file.write(CONTENTS)
    del file
    gc.collect()
    assert pz.open(path).read() == CONTENTS


def test_list(path):
    (frame,) = pz.list(path, blocks=True)
    assert frame.content_size == len(CONTENTS) and frame.level == 1 and frame.pipeline == "lzh"
    assert frame.block_count == len(frame.blocks) == -(-len(CONTENTS) // (1 << 16))
    assert sum(block.content_size for block in frame.blocks) == len(CONTENTS)
    assert pz.list(path)[0].blocks == ()
    assert pz.list(io.BytesIO(path.read_bytes()), blocks=True) == (frame,)


@pytest.mark.parametrize("fill", [False, True])
def test_recover(path, tmp_path, fill):
    damaged = bytearray(path.read_bytes())
    block = pz.list(path, blocks=True)[0].blocks[1]
    damaged[block.payload_offset + 5] ^= 1
    report = pz.recover(io.BytesIO(damaged), tmp_path / "saved", fill=fill)
    assert report.lost == ((1 << 16, 2 << 16),) and not report.end_unknown
    middle = bytes(1 << 16) if fill else b""
    expected = CONTENTS[: 1 << 16] + middle + CONTENTS[2 << 16 :]
    assert (tmp_path / "saved").read_bytes() == expected
    target = io.BytesIO()
    assert pz.recover(io.BytesIO(damaged), target, fill=fill) == report
    assert target.getvalue() == expected
    with pytest.raises(pz.NotPzError):
        pz.recover(io.BytesIO(b"nothing of it" * 100), io.BytesIO())
    (tmp_path / "damaged.pz").write_bytes(damaged)
    (tmp_path / "link.pz").hardlink_to(tmp_path / "damaged.pz")
    with pytest.raises(pz.OptionError, match="same file"):
        pz.recover(tmp_path / "link.pz", tmp_path / "damaged.pz")
    with open(tmp_path / "damaged.pz", "rb") as file, pytest.raises(pz.OptionError, match="same file"):
        pz.recover(file, tmp_path / "damaged.pz")
    assert (tmp_path / "damaged.pz").read_bytes() == damaged


def test_modules_of_files():
    path = pathlib.Path(__file__).parents[2] / "tests/golden/v1/module.pz"
    data = path.read_bytes()
    contents = pz.decompress(data, allow_modules=True)
    assert len(contents) == pz.content_size(data)
    # Trust one module after another.
    trusted: list[str] = []
    while len(trusted) < 7:
        try:
            assert pz.decompress(data, allow_modules=trusted) == contents
            break
        except pz.UntrustedModuleError as error:
            assert error.block is None and error.sha256 not in trusted
            trusted.append(error.sha256)
    assert trusted and all(len(sha256) == 64 for sha256 in trusted)
    with pz.open(path, allow_modules=True) as file:
        assert file.read() == contents
    assert pz.load(path, "cpu", allow_modules=True).tobytes() == contents
    for untrusted in (False, [], ["0" * 64]):
        with pytest.raises(pz.UntrustedModuleError):
            pz.decompress(data, allow_modules=untrusted)
        with pytest.raises(pz.UntrustedModuleError):
            pz.load(path, "cpu", allow_modules=untrusted)
    for wrong in (["12"], ["g" * 64]):
        with pytest.raises(pz.OptionError):
            pz.decompress(data, allow_modules=wrong)
    with pytest.raises(TypeError):
        pz.decompress(data, allow_modules=3.5)
