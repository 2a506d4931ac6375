"""Types of arguments that several functions share, for type checkers."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, TypedDict

if TYPE_CHECKING:
    from typing_extensions import Buffer as Buffer
else:
    Buffer = Any

Path = str | os.PathLike[str]
"""The path of a file."""


class LoadOptions(TypedDict, total=False):
    """The options of `libpz.load` that limit its resources."""

    threads: int
    max_output: int | None
    max_memory: int | None
    allow_modules: bool | list[str]


class DecodeOptions(LoadOptions, total=False):
    """The options of `libpz.decompress`."""

    device: str
    device_memory: int | None


class CodecOptions(TypedDict, total=False):
    """The options of `libpz.compress` except the level and the device."""

    pipeline: str | None
    block_size: int | None
    window: int | None
    long: int | None
    filter: str | None
    rsyncable: bool
    threads: int
    memory: int | None
    verify: bool


class EncodeOptions(CodecOptions, total=False):
    """The options of `libpz.compress` except the level."""

    device: str
    device_memory: int | None
