"""File objects of other packages: their positions, methods, exceptions and references."""

import gc
import io
import os
import weakref

import pytest

import libpz as pz

CONTENTS = b"".join(b"line %d of a file\n" % number for number in range(60_000))
BLOCKS = {"block_size": 1 << 16}


def test_file_objects():
    target = io.BytesIO()
    with pz.open(target, "wb", **BLOCKS) as file:
        file.write(CONTENTS)
    assert not target.closed
    target.seek(0)
    with pz.open(target) as file:
        file.seek(70_000)
        assert file.read(50) == CONTENTS[70_000:70_050]
    assert not target.closed
    assert pz.decompress(target.getvalue()) == CONTENTS


DOORS = {
    "open": lambda file: pz.open(file).read(),
    "range": lambda file: pz.FileReader(file).readall(),
    "list": lambda file: pz.list(file)[0].content_size,
    "load": lambda file: pz.load(file, "cpu").tobytes(),
    "archive": lambda file: pz._libpz.Archive(file).size,
    "recover": lambda file: pz.recover(file, io.BytesIO()).bytes,
}


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("start", [0, 11])
def test_file_objects_are_read_from_where_they_stand(door, start):
    frames = pz.compress(b"in front"), pz.compress(CONTENTS, **BLOCKS)
    for before in (b"a header of its own"[:start], b"" if start == 0 else frames[0]):
        file = io.BytesIO(before + frames[1])
        file.seek(len(before))
        for _ in range(2):
            got = DOORS[door](file)
            assert got == (len(CONTENTS) if isinstance(got, int) else CONTENTS)
            assert file.tell() == len(before)
    file.seek(0, os.SEEK_END)
    with pytest.raises(pz.TruncatedError):
        pz.open(file)


class OnlyRead:
    """A file object like those of some object store clients."""

    def __init__(self, data):
        self.read = io.BytesIO(data).read


class NoSeekable(OnlyRead):
    """Like temporary files before Python 3.11: `seek` returns nothing."""

    def __init__(self, data):
        file = io.BytesIO(data)
        self.read, self.tell = file.read, file.tell
        self.seek = lambda offset, whence=0: file.seek(offset, whence) and None


class Sink:
    """A file object that only writes, and does not return how much."""

    def __init__(self, parts):
        self.parts = parts

    def write(self, data):
        self.parts.append(data)


def test_file_objects_with_few_methods(tmp_path):
    data = pz.compress(CONTENTS, **BLOCKS)
    with pz.open(OnlyRead(data)) as file:
        assert not file.seekable() and file.read() == CONTENTS
    with pz.open(NoSeekable(data)) as file:
        assert file.seekable() and file.seek(70_000) == 70_000 and file.read() == CONTENTS[70_000:]
    assert pz.list(NoSeekable(data))[0].content_size == len(CONTENTS)
    for door in (pz.list, pz.load, pz.open_file, lambda file: pz.recover(file, tmp_path / "saved")):
        with pytest.raises(TypeError, match=r"file object with seek\(\), not OnlyRead"):
            door(OnlyRead(data))
        pipe = io.BufferedReader(Failing(data))
        with pytest.raises(io.UnsupportedOperation, match="does not seek"):
            door(pipe)
    for mode in ("wb", "ab"):
        parts = []
        with pz.open(Sink(parts), mode, **BLOCKS) as file:
            file.write(CONTENTS)
        assert b"".join(parts) == data


def cycles():
    """Objects of libpz, and file objects that refer to them."""

    class File(io.BytesIO):
        pass

    class Pipe(File):
        def seekable(self):
            return False

    class Full(File):
        def write(self, data):
            raise ZeroDivisionError("planted")

    data = pz.compress(CONTENTS, **BLOCKS)
    for make, opened in [
        (lambda: File(data), pz.open),
        (lambda: Pipe(data), pz.open),
        (lambda: File(), lambda file: pz.open(file, "wb")),
        (lambda: File(data), pz._libpz.Archive),
    ]:
        file = make()
        file.libpz = opened(file)
        yield weakref.ref(file)
    full = Full()
    full.libpz = pz._libpz.Writer(full)
    full.libpz.write(b"some contents")
    with pytest.raises(ZeroDivisionError):
        full.libpz.flush()
    yield weakref.ref(full)


def test_cycles_are_collected():
    files = list(cycles())
    gc.collect()
    assert [file() for file in files] == [None] * len(files)


class Failing(io.RawIOBase):
    """A file that fails after some bytes."""

    def __init__(self, data=b"", left=1000):
        self.data, self.left, self.at = data, left, 0

    def _take(self, count):
        self.left -= count
        if self.left < 0:
            raise ZeroDivisionError("planted")

    def readable(self):
        return True

    def writable(self):
        return True

    def read(self, count=-1):
        self._take(1)
        part = self.data[self.at : self.at + count]
        self.at += len(part)
        return part

    def write(self, data):
        self._take(len(data))
        return len(data)


def test_an_exception_in_a_callback():
    # The caller gets the file object's own exception.
    writer = pz.FileWriter(Failing(left=100_000), threads=2, **BLOCKS)
    with pytest.raises(ZeroDivisionError, match="planted") as caught:
        for _ in range(100):
            writer.write(os.urandom(65_536))
    # All further calls raise a copy of it, since the file is incomplete.
    for call in (lambda: writer.write(b"more"), writer.flush, writer.close):
        with pytest.raises(ZeroDivisionError, match="planted") as again:
            call()
        assert again.value is not caught.value and again.value.__cause__ is caught.value
    assert writer.closed
    reader = pz.FileReader(Failing(pz.compress(CONTENTS, **BLOCKS), left=3))
    for _ in range(2):
        with pytest.raises(ZeroDivisionError, match="planted"):
            reader.readall()


@pytest.mark.parametrize(
    "raised",
    [
        ZeroDivisionError("planted"),
        OSError(28, "No space left on device", "a file"),
        MemoryError("little"),
        EOFError("the end"),
        KeyboardInterrupt(),
        pz.CorruptError("another file"),
    ],
    ids=lambda raised: type(raised).__name__,
)
def test_exceptions_of_callbacks_keep_their_kind(raised):
    def fail(*_):
        raise raised

    target = Sink([])
    target.write = fail
    with pytest.raises(type(raised)) as caught, pz.open(target, "wb", 1) as file:
        file.write(os.urandom(1 << 21))
    assert caught.value.args == raised.args and vars(caught.value) == vars(raised)
    assert getattr(caught.value, "filename", None) == getattr(raised, "filename", None)
    source = OnlyRead(b"")
    source.read = fail
    with pytest.raises(type(raised)) as caught:
        pz.open(source)
    assert caught.value is raised
    seeking = io.BytesIO(pz.compress(os.urandom(1 << 21)))
    readers = [pz.FileReader(seeking).readall, lambda: pz.load(seeking, "cpu"), lambda: pz.list(seeking)]
    archive = pz._libpz.Archive(seeking)
    seeking.read = fail
    for read in (*readers, lambda: archive.read_into([(0, bytearray(10))])):
        with pytest.raises(type(raised)) as caught:
            read()
        assert caught.value is raised


class Odd(io.BytesIO):
    """A file object whose methods return wrong values."""

    def __init__(self, data, read=None, write=None):
        super().__init__(data)
        self.odd_read, self.odd_write = read, write

    def read(self, count=-1):
        return super().read(count) if self.odd_read is None else self.odd_read(count)

    def write(self, data):
        return self.odd_write


@pytest.mark.parametrize(
    ("read", "error"),
    [
        (lambda count: "text", TypeError),
        (lambda count: None, BlockingIOError),
        (lambda count: bytes(count + 1), ValueError),
        (lambda count: b"", EOFError),
        (lambda count: 7, TypeError),
    ],
)
def test_odd_readers(read, error):
    with pytest.raises((error, OSError)):
        pz.FileReader(Odd(pz.compress(CONTENTS), read=read))


class Refused(OSError):
    """An exception that cannot be copied."""

    def __init__(self, *, why):
        super().__init__(28, why)


def test_exceptions_of_callbacks_that_cannot_be_raised_again():
    def fail(data):
        raise Refused(why="full")

    target = Sink([])
    target.write = fail
    writer = pz.FileWriter(target)
    writer.write(b"some contents")
    with pytest.raises(Refused):
        writer.flush()
    with pytest.raises(OSError, match="incomplete") as caught:
        writer.close()
    assert isinstance(caught.value.__cause__, Refused)


def test_interrupted_callbacks_are_called_again():
    parts, interruptions = [], [InterruptedError(4, "a signal")] * 3

    def write(data):
        if interruptions:
            raise interruptions.pop()
        parts.append(data)

    target = Sink(parts)
    target.write = write
    with pz.open(target, "wb") as file:
        file.write(b"some contents")
    assert pz.decompress(b"".join(parts)) == b"some contents"


class OddRaw(io.RawIOBase):
    """A raw file that would block."""

    def write(self, data):
        return None


@pytest.mark.parametrize("target", [OddRaw(), *(Odd(b"", write=write) for write in (10**9, -1, "text", 0))])
def test_odd_writers(target):
    writer = pz.FileWriter(target)
    writer.write(b"some contents")
    with pytest.raises((OSError, ValueError, TypeError, OverflowError)):
        writer.close()


def test_a_callback_that_uses_its_own_file():
    class Entering(io.BytesIO):
        writer = None

        def write(self, data):
            if self.writer is not None:
                self.writer.write(b"again")
            return super().write(data)

    target = Entering()
    target.writer = pz.FileWriter(target)
    target.writer.write(b"once")
    with pytest.raises(pz.InUseError):
        target.writer.flush()
    with pytest.raises(pz.InUseError):
        target.writer.close()
