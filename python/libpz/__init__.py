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
| decompress into the memory of a GPU, or into a tensor | `load`, `DeviceBuffer` |
| keep arrays and tensors in a file | `save_file`, `load_file`, `open_file`, `from_safetensors`, `to_safetensors` |
| see what a file holds, or save what a damaged one still holds | `list`, `recover` |
| know the devices of this machine, and what work will cost | `devices`, `cost` |
| compress the chunks of Zarr's arrays | `libpz.zarr.PzCodec`, `libpz.numcodecs.Pz` |

All exceptions are subclasses of `Error`, apart from `OSError` for failed system calls, `TypeError` for wrong types,
`ValueError` for closed files, and the exceptions of file objects that you pass.
"""

import atexit as _atexit
import os as _os

# By default CUDA spreads the streams of a process over 8 queues of the card. Streams that share a queue wait for each
# other. This must be set before CUDA is first used.
_os.environ.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", "32")

from . import _libpz
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
    UnsuitableBufferError,
    UnsupportedError,
    UntrustedModuleError,
)
from ._file import FileReader, FileWriter, open
from ._info import BlockInfo, Device, FrameInfo, Prediction, RecoveryReport, cost, devices, list, recover
from ._libpz import (
    Compressor,
    Decompressor,
    DeviceBuffer,
    __version__,
    compress,
    compress_into,
    content_size,
    decompress,
    decompress_into,
)
from ._load import load
from ._safetensors import from_safetensors, to_safetensors
from ._tensors import TensorFile, TensorSlice, load_file, open_file, save_file

__all__ = [
    "BlockInfo",
    "BufferTooSmallError",
    "ChangedError",
    "Compressor",
    "CorruptError",
    "Decompressor",
    "Device",
    "DeviceBuffer",
    "DeviceError",
    "Error",
    "FileReader",
    "FileWriter",
    "FrameInfo",
    "InUseError",
    "InputError",
    "InternalError",
    "MemoryLimitError",
    "NotPzError",
    "OptionError",
    "OutOfMemoryError",
    "OutputLimitError",
    "Prediction",
    "RangeError",
    "RecoveryReport",
    "TensorError",
    "TensorFile",
    "TensorSlice",
    "TruncatedError",
    "UnsuitableBufferError",
    "UnsupportedError",
    "UntrustedModuleError",
    "__version__",
    "compress",
    "compress_into",
    "content_size",
    "cost",
    "decompress",
    "decompress_into",
    "devices",
    "from_safetensors",
    "list",
    "load",
    "load_file",
    "open",
    "open_file",
    "recover",
    "save_file",
    "to_safetensors",
]

# Drivers crash if the process ends while they open a device.
_atexit.register(_libpz.finish_opening)
