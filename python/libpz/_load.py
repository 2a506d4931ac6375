"""Decompresses files into the memory of a device."""

from __future__ import annotations

import builtins
import os
from typing import IO, Any, Unpack

from . import _libpz
from ._errors import OptionError
from ._types import LoadOptions, Path


def load(
    source: Path | IO[bytes],
    device: str = "auto",
    range: slice | builtins.range | tuple[int | None, int | None] | None = None,
    out: Any = None,
    stream: Any = None,
    **options: Unpack[LoadOptions],
) -> Any:
    """Decompress a file into the memory of a device, or of the host.

    `source` is a path, a URI such as "https://host/file.pz", or a seekable file object, which is read from its current
    position and put back there. `range` names bytes of the contents, such as `slice(1000, 2000)`; only the blocks that
    hold them are read. The result is a `DeviceBuffer`, which other packages take without a copy:

    >>> weights = torch.from_dlpack(libpz.load("weights.bin.pz")).view(torch.float32)

    `device` is "cuda", "opencl" or "webgpu", with a number if there are several ("cuda:1"), or "cpu" for the host's
    memory. "auto" is the first CUDA GPU or, without one, the host's memory. Compressed bytes cross the bus, and the
    device decodes them.

    With `out`, the contents go there, and `load` returns `out`: a `DeviceBuffer`, a tensor or array with `__dlpack__`
    or `__cuda_array_interface__`, or a writable buffer. It must be C-contiguous and exactly as long as the range;
    `device` is then ignored. If the device fails, or the file is damaged, the contents of `out` are unspecified.

    Before `load` writes the contents, it waits for earlier work on the CUDA stream `stream`, or on the default stream.
    When `load` returns, every stream can use the contents. `stream` is a number, or a stream of torch or CuPy.

    `threads`, `max_output`, `max_memory` and `allow_modules` are those of `decompress`. The first call opens a device,
    and later calls reuse it.
    """
    start, stop = _bounds(range)
    if not hasattr(source, "read"):
        source = os.fspath(source)
    return _libpz.load(source, device, start, stop, out, stream, **options)


def _bounds(range: slice | builtins.range | tuple[int | None, int | None] | None) -> tuple[int | None, int | None]:
    if range is None:
        return None, None
    if isinstance(range, tuple):
        start, stop = range
        return start, stop
    if range.step not in (None, 1):
        raise OptionError(f"a range has no step, and this one has {range.step}")
    return range.start, range.stop
