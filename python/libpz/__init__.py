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
| keep arrays and tensors in a file | `save_file`, `load_file`, `open_file`, `from_safetensors`, `to_safetensors` |
| see what a file holds, or save what a damaged one still holds | `list`, `recover` |
| know the devices of this machine, and what work will cost | `devices`, `cost` |
| compress the chunks of Zarr's arrays | `libpz.zarr.PzCodec`, `libpz.numcodecs.Pz` |

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
    TensorError,
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
from ._safetensors import from_safetensors, to_safetensors
from ._tensors import TensorFile, TensorSlice, load_file, open_file, save_file

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
    "from_safetensors",
    "InputError",
    "InternalError",
    "InUseError",
    "list",
    "load_file",
    "MemoryLimitError",
    "NotPzError",
    "open",
    "open_file",
    "OptionError",
    "OutOfMemoryError",
    "OutputLimitError",
    "Prediction",
    "RangeError",
    "recover",
    "RecoveryReport",
    "save_file",
    "TensorError",
    "TensorFile",
    "TensorSlice",
    "to_safetensors",
    "TruncatedError",
    "UnsupportedError",
]

# Drivers cannot handle a process that ends while they open a device.
_atexit.register(_finish_opening)
if hasattr(_os, "register_at_fork"):
    _os.register_at_fork(after_in_child=_after_fork)
