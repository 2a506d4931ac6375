"""Files of compressed contents as Python's file objects."""

from __future__ import annotations

import io
import os
import stat
from typing import IO, Any, Literal, Unpack, cast, overload

from ._errors import OptionError
from ._libpz import Reader, StreamReader, Writer, frames
from ._types import Buffer, DecodeOptions, EncodeOptions, Path

_BUFFER_SIZE = 1 << 17
"""Bytes that `open` reads and writes at once."""


class FileReader(io.RawIOBase):
    """The contents of a compressed file, unbuffered. `open` puts a buffer around it.

    Seeks if `source` is the path of a regular file or a seekable file object, and then decodes only the blocks that are
    read. From any other source it reads ahead, and needs only the method `read`. A file object is read from its current
    position; a seekable one is put back there after each read.
    """

    def __init__(self, source: Path | IO[bytes], **options: Unpack[DecodeOptions]) -> None:
        self._position = 0
        self._reader: Reader | StreamReader | None = None
        self._owned: io.FileIO | None = None
        if hasattr(source, "read"):
            file = cast(IO[bytes], source)
            self.name = getattr(file, "name", None)
            self._reader = Reader(file, **options) if _seeks(file) else StreamReader(file, **options)
            return
        path = source
        self.name = os.fspath(path)
        # For most local files, this test is all that the check for a URI costs.
        if "://" in os.fsdecode(path):
            self._reader = Reader(path, **options)
            return
        if stat.S_ISREG(os.stat(path).st_mode):
            self._reader = Reader(path, **options)
            return
        # Files that are not regular, such as named pipes, may not be seekable.
        self._owned = io.FileIO(path)
        try:
            self._reader = StreamReader(self._owned, **options)
        except BaseException:
            self._owned.close()
            raise

    @property
    def mode(self) -> str:
        """Always "rb"."""
        return "rb"

    def readable(self) -> bool:
        """Always true."""
        self._open_reader()
        return True

    def seekable(self) -> bool:
        """Whether contents can be read in any order."""
        return isinstance(self._open_reader(), Reader)

    def readinto(self, buffer: Buffer, /) -> int:
        """Read up to the length of `buffer` into it; return the number of bytes, 0 at the end."""
        reader = self._open_reader()
        if isinstance(reader, Reader):
            count = reader.read_into(self._position, buffer)
        else:
            count = reader.read_into(buffer)
        self._position += count
        return count

    def readall(self) -> bytes:
        """Read to the end."""
        reader = self._open_reader()
        if not isinstance(reader, Reader):
            return super().readall()
        contents = reader.read_bytes(self._position, reader.size)
        self._position += len(contents)
        return contents

    def tell(self) -> int:
        """The position in the contents."""
        self._open_reader()
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        """Change the position in the contents, and return it."""
        reader = self._open_reader()
        if not isinstance(reader, Reader):
            raise io.UnsupportedOperation("the source does not seek")
        starts = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: reader.size}
        if whence not in starts:
            raise ValueError(f"whence {whence} is not 0, 1 or 2")
        position = starts[whence] + offset
        if position < 0:
            raise ValueError(f"negative seek position {position}")
        self._position = position
        return position

    def close(self) -> None:
        """Let go of the file. A file object that the caller passed stays open."""
        if self.closed:
            return
        try:
            if self._reader is not None:
                self._reader.close()
            if self._owned is not None:
                self._owned.close()
        finally:
            super().close()

    def _open_reader(self) -> Reader | StreamReader:
        if self.closed or self._reader is None:
            raise ValueError("I/O operation on closed file")
        return self._reader


class FileWriter(io.RawIOBase):
    """Compresses to a file, unbuffered. `open` puts a buffer around it.

    The file is complete only after `close`. After an exception it stays incomplete, and each further call raises the
    same exception.
    """

    def __init__(
        self, target: Path | IO[bytes], mode: str = "wb", level: int = 3, **options: Unpack[EncodeOptions]
    ) -> None:
        self.mode = mode
        self._position = 0
        self._writer: Writer | None = None
        self._owned: io.FileIO | None = None
        if hasattr(target, "write"):
            file = cast(IO[bytes], target)
            self.name = getattr(file, "name", None)
            self._writer = Writer(file, level, **options)
            if "a" in mode and _seeks(file):
                file.seek(0, io.SEEK_END)
            return
        # Check the options before a file is made or emptied.
        Writer(io.BytesIO(), level, **options)
        if "a" in mode and os.path.isfile(target) and os.path.getsize(target) > 0:
            # No reader would find frames after damaged data, or after data of another format.
            last = frames(target, False)[-1]
            end = last["offset"] + last["compressed_size"]
            if end < os.path.getsize(target):
                # Frames must not follow padding.
                os.truncate(target, end)
        self._owned = io.FileIO(target, mode)
        self.name = self._owned.name
        try:
            self._writer = Writer(self._owned, level, **options)
        except BaseException:
            self._owned.close()
            raise

    def writable(self) -> bool:
        """Always true."""
        self._check_open()
        return True

    def write(self, data: Buffer, /) -> int:
        """Compress all of `data`. Part of it may reach the file later."""
        self._check_open()
        if self._writer is None:
            raise ValueError("I/O operation on closed file")
        count = self._writer.write(data)
        self._position += count
        return count

    def tell(self) -> int:
        """The number of bytes of contents so far."""
        self._check_open()
        return self._position

    def flush(self) -> None:
        """Compress everything so far and write it to the file, so that it can be read. This ends a block early.

        The buffer that `open` puts around this object does not call it.
        """
        self._check_open()
        # `close` has already ended the file before it calls this.
        if self._writer is not None:
            self._writer.flush()

    def close(self) -> None:
        """Write the rest and end the file. A file object that the caller passed stays open."""
        if self.closed:
            return
        try:
            if self._writer is not None:
                self._writer.finish()
        finally:
            self._writer = None
            try:
                super().close()
            finally:
                if self._owned is not None:
                    self._owned.close()

    def _check_open(self) -> None:
        if self.closed:
            raise ValueError("I/O operation on closed file")


@overload
def open(
    file: Path | IO[bytes], mode: Literal["rb", "r"] = "rb", level: int = 3, **options: Any
) -> io.BufferedReader: ...
@overload
def open(
    file: Path | IO[bytes], mode: Literal["wb", "xb", "ab", "w", "x", "a"], level: int = 3, **options: Any
) -> io.BufferedWriter: ...
@overload
def open(
    file: Path | IO[bytes],
    mode: Literal["rt", "wt", "xt", "at"],
    level: int = 3,
    *,
    encoding: str | None = None,
    errors: str | None = None,
    newline: str | None = None,
    **options: Any,
) -> io.TextIOWrapper: ...
@overload
def open(
    file: Path | IO[bytes],
    mode: str,
    level: int = 3,
    *,
    encoding: str | None = None,
    errors: str | None = None,
    newline: str | None = None,
    **options: Any,
) -> io.BufferedReader | io.BufferedWriter | io.TextIOWrapper: ...
def open(
    file: Path | IO[bytes],
    mode: str = "rb",
    level: int = 3,
    *,
    encoding: str | None = None,
    errors: str | None = None,
    newline: str | None = None,
    **options: Any,
) -> io.BufferedReader | io.BufferedWriter | io.TextIOWrapper:
    """Open a compressed file, and return a file object of its contents.

    `file` is a path, a URI such as "https://host/file.pz" or "s3://bucket/key" for reading, or a file object, which
    `close` leaves open. `mode` is "rb", "wb", "xb" for a file that must not exist yet, or "ab", which appends to one;
    "rt", "wt", "xt" and "at" are for text, and `encoding`, `errors` and `newline` are those of the built-in `open`.

    Files for reading are seekable if `file` is a path, a URI or a seekable file object; only the blocks that are read
    get decoded. File objects are read from their current position. Several threads may each open the same file. Options
    for reading are those of `decompress`, for writing those of `compress`.

    Appending adds a new frame after the others. A path must then name a pz file, or no file.

    A written file is complete when it has been closed; a `with` statement does that.
    """
    kind = mode.replace("t", "", 1) if "t" in mode else mode.replace("b", "", 1)
    if kind not in ("r", "w", "x", "a"):
        raise OptionError(f"mode {mode!r} is not rb, wb, xb, ab, rt, wt, xt or at")
    is_text = "t" in mode
    if not is_text and (encoding, errors, newline) != (None, None, None):
        raise OptionError("encoding, errors and newline are for text modes")
    buffered: io.BufferedReader | io.BufferedWriter
    if kind == "r":
        buffered = io.BufferedReader(FileReader(file, **options), _BUFFER_SIZE)
    else:
        buffered = io.BufferedWriter(FileWriter(file, kind + "b", level, **options), _BUFFER_SIZE)
    if not is_text:
        return buffered
    try:
        text = io.TextIOWrapper(buffered, io.text_encoding(encoding), errors, newline)
    except BaseException:
        buffered.close()
        raise
    text.mode = mode  # type: ignore[misc]  # as the built-in `open` sets it
    return text


def _seeks(file: IO[bytes]) -> bool:
    """Whether a file object seeks. Some have no `seekable` to ask."""
    if hasattr(file, "seekable"):
        return bool(file.seekable())
    return hasattr(file, "seek") and hasattr(file, "tell")
