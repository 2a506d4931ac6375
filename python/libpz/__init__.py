"""Lossless compression in a format that CPUs and GPUs decode equally well.

>>> import libpz as pz
>>> small = pz.compress(b"what is said three times is true " * 3000)
>>> pz.decompress(small)[:32]
b'what is said three times is true'

| to | use |
|---|---|
| compress or decompress a buffer | `compress`, `decompress`, `compress_into`, `decompress_into`, `content_size` |
| the same for many buffers | `Compressor`, `Decompressor` |
| read and write files | `open` |
| see what a file holds, or save what a damaged one still holds | `list`, `recover` |
| know the devices of this machine, and what work will cost | `devices`, `cost` |

All exceptions are subclasses of `Error`, except those of the system (`OSError`) and of wrong types (`TypeError`,
`BufferError`).
"""

import atexit as _atexit
import os as _os

from ._errors import (
    BufferTooSmallError,
    ChangedError,
    CorruptError,
    DeviceError,
    Error,
    InputError,
    InternalError,
    InUseError,
    MemoryLimitError,
    NotPzError,
    OptionError,
    OutOfMemoryError,
    OutputLimitError,
    RangeError,
    TruncatedError,
    UnsupportedError,
)
from ._file import FileReader, FileWriter, open
from ._info import BlockInfo, Device, FrameInfo, Prediction, RecoveryReport, cost, devices, list, recover
from ._libpz import (
    Compressor,
    Decompressor,
    compress,
    compress_into,
    content_size,
    decompress,
    decompress_into,
    after_fork as _after_fork,
    finish_opening as _finish_opening,
)

__all__ = [
    "BlockInfo",
    "BufferTooSmallError",
    "ChangedError",
    "compress",
    "compress_into",
    "Compressor",
    "content_size",
    "CorruptError",
    "cost",
    "decompress",
    "decompress_into",
    "Decompressor",
    "Device",
    "DeviceError",
    "devices",
    "Error",
    "FileReader",
    "FileWriter",
    "FrameInfo",
    "InputError",
    "InternalError",
    "InUseError",
    "list",
    "MemoryLimitError",
    "NotPzError",
    "open",
    "OptionError",
    "OutOfMemoryError",
    "OutputLimitError",
    "Prediction",
    "RangeError",
    "recover",
    "RecoveryReport",
    "TruncatedError",
    "UnsupportedError",
]

# Drivers cannot handle a process that ends while they open a device.
_atexit.register(_finish_opening)
if hasattr(_os, "register_at_fork"):
    _os.register_at_fork(after_in_child=_after_fork)
