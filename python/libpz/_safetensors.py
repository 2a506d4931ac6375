"""Converts between `.safetensors` files and compressed files of tensors, and checks the result byte for byte."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import IO, Unpack

from ._errors import InternalError, TensorError
from ._frames import Part, new_file, write_parts
from ._header import read_header
from ._libpz import Reader
from ._types import DecodeOptions, EncodeOptions, Path

_PIECE = 16 << 20
"""Bytes to read at once."""


def from_safetensors(source: Path, target: Path, *, level: int = 3, **options: Unpack[EncodeOptions]) -> None:
    """Compress the `.safetensors` file `source` to `target`, as `save_file` would.

    The contents stay the same byte for byte. `target` gets its name after it has been read again and compared; a pipe
    cannot be checked.
    """
    with io.FileIO(source) as file, new_file(target, source) as compressed:
        size = file.seek(0, io.SEEK_END)

        def read(offset: int, length: int) -> bytes:
            file.seek(offset)
            return b"".join(_pieces(file, min(length, size - offset)))

        header = read_header(read, size)

        def parts() -> Iterator[Part]:
            file.seek(0)
            yield Part(None, header.data_start, _pieces(file, header.data_start))
            for info in header.tensors.values():
                length = info.stop - info.start
                yield Part(info.dtype, length, _pieces(file, length))

        write_parts(compressed, parts(), level, options)
        if compressed.seekable():
            compressed.seek(0)
            _compare(file, Reader(compressed))


def to_safetensors(source: Path, target: Path, **options: Unpack[DecodeOptions]) -> None:
    """Decompress a file of tensors to the `.safetensors` file `target`.

    `target` gets its name after it has been read again and compared; a pipe cannot be checked.
    """
    reader = Reader(source, **options)
    read_header(reader.read_bytes, reader.size)
    with new_file(target, source) as file:
        for at in range(0, reader.size, _PIECE):
            piece = memoryview(reader.read_bytes(at, _PIECE))
            while piece:
                piece = piece[file.write(piece) :]
        if file.seekable():
            _compare(file, reader)


def _pieces(file: IO[bytes] | io.FileIO, length: int) -> Iterator[bytes]:
    """The next `length` bytes of a file."""
    while length > 0:
        piece = file.read(min(length, _PIECE))
        if not piece:
            raise TensorError("the file has become shorter while it was read")
        length -= len(piece)
        yield piece


def _compare(file: IO[bytes] | io.FileIO, reader: Reader) -> None:
    """Check that the contents of a compressed file are those of `file`."""
    at = file.seek(0)
    for piece in _pieces(file, reader.size):
        if piece != reader.read_bytes(at, len(piece)):
            raise InternalError(f"the contents differ between byte {at} and {at + len(piece)}")
        at += len(piece)
    if file.read(1):
        raise InternalError(f"the contents end at byte {at}, and the file does not")
