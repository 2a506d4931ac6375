"""Writes frames of several kinds to one file, and files that get their names when they are complete."""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import IO, cast

from ._errors import OptionError
from ._header import DTYPES
from ._libpz import NewFile, Writer
from ._types import Buffer, EncodeOptions, Path

_BLOCK = 4 << 20
"""A part of at least this many bytes begins its own frame, so that reading it decodes nothing else."""


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a file's contents."""

    dtype: str | None
    """The type of its elements; `None` for a header."""
    size: int
    """Bytes."""
    pieces: Iterable[Buffer]
    """Its contents, in order."""


def write_parts(target: IO[bytes], parts: Iterable[Part], level: int, options: EncodeOptions) -> None:
    """Write parts, each in a frame that suits its type. Short parts of the same type share a frame."""
    writer: Writer | None = None
    current: EncodeOptions = {}
    filled = 0
    for part in parts:
        suited = _suited(part.dtype, options)
        if writer is None or suited != current or max(part.size, filled) >= _BLOCK:
            if writer is not None:
                writer.finish()
            writer, current, filled = Writer(target, level, **suited), suited, 0
        for piece in part.pieces:
            writer.write(piece)
        filled += part.size
    if writer is not None:
        writer.finish()


def _suited(dtype: str | None, options: EncodeOptions) -> EncodeOptions:
    """The caller's options, completed with options that suit the type."""
    suited = options.copy()
    if dtype is not None:
        known = DTYPES[dtype]
        # If the caller names a filter or a pipeline, use nothing else.
        if options.get("filter") is None and options.get("pipeline") is None:
            suited["pipeline"] = known.pipeline
        if options.get("filter") is None:
            suited["filter"] = known.filter
    return suited


@contextlib.contextmanager
def new_file(file: Path | IO[bytes], source: object = None) -> Iterator[IO[bytes]]:
    """A file to write. If `target` is a path, the file gets its name when it is complete; after an exception nothing is
    left of it.

    A link stays, and so does the mode of a replaced file. `source`, a file that is read meanwhile, must be a different
    file.
    """
    if hasattr(file, "write"):
        yield cast(IO[bytes], file)
        return
    read = source if isinstance(source, str | os.PathLike) else getattr(source, "name", None)
    if isinstance(read, str | os.PathLike) and _is_same(read, file):
        raise OptionError(f"source and target are the same file, {os.fspath(file)!r}")
    unfinished = NewFile(file)
    try:
        # This class also takes a pipe, which cannot be read.
        with io.FileIO(unfinished.descriptor(), "rb+") as target:
            yield cast(IO[bytes], target)
        unfinished.finish()
    finally:
        unfinished.discard()


def _is_same(one: Path, other: Path) -> bool:
    """Whether two paths lead to the same regular file."""
    try:
        return os.path.isfile(other) and os.path.samefile(one, other)
    except OSError:
        return False
