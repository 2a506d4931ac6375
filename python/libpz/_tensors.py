"""Saves dictionaries of arrays or tensors in a file, and loads them.

The contents of such a file are those of a `.safetensors` file, so `pz decompress` makes one: a header that names the
tensors, their types and shapes, and then their data. They are split into frames, each with the filter that suits the
types of its tensors. A tensor can be read without the others, and a part of it without the rest.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Iterable, Iterator, KeysView, Mapping
from types import TracebackType
from typing import IO, Any, Self, Unpack

from . import _arrays
from ._errors import OptionError, RangeError, TensorError
from ._frames import Part, new_file, write_parts
from ._header import DTYPES, Header, TensorInfo, check_text, read_header
from ._libpz import Archive, Reader
from ._types import DecodeOptions, EncodeOptions, LoadOptions, Path


def save_file(
    tensors: Mapping[str, Any],
    file: Path | IO[bytes],
    metadata: Mapping[str, str] | None = None,
    *,
    level: int = 3,
    **options: Unpack[EncodeOptions],
) -> None:
    """Write a dictionary of NumPy arrays or torch tensors to `file`, a path or a file object.

    If `file` is a path, the file gets its name when it is complete. Until then, an existing file stays unchanged; its
    mode is kept. If the path is a link, a device or a pipe, it stays, and the contents are written to it.

    `metadata` is text to keep beside them. The options are those of `compress`. Without `filter`, each type gets the
    one that suits it; without `pipeline` too, floats are entropy-coded alone ("fse"), which makes weights smaller and
    is faster.
    """
    metadata = {} if metadata is None else metadata
    check_text(tensors, metadata)
    arrays = {name: _arrays.to_bytes(tensor, name) for name, tensor in tensors.items()}
    # Put large elements first, so that each tensor begins at a multiple of its elements' size.
    names = sorted(arrays, key=lambda name: (-DTYPES[arrays[name][0]].bits, arrays[name][0], name))
    infos, parts, at = {}, [], 0
    for name in names:
        dtype, shape, data = arrays[name]
        infos[name] = TensorInfo(dtype, shape, at, at + data.nbytes)
        parts.append(Part(dtype, data.nbytes, [data]))
        at += data.nbytes
    header = Header(infos, dict(metadata)).to_bytes()
    with new_file(file) as target:
        write_parts(target, [Part(None, len(header), [header]), *parts], level, options)


def load_file(
    file: Path | IO[bytes], framework: str = "numpy", to: str | None = None, **options: Unpack[DecodeOptions]
) -> dict[str, Any]:
    """Read all tensors of `file` as NumPy arrays, or with `framework="torch"` as torch tensors.

    `to` is the device for torch tensors, such as "cuda" or "cuda:1". That GPU decodes them in place, and only
    compressed bytes cross the bus. The options are those of `decompress`.
    """
    with open_file(file, framework, to, **options) as tensors:
        return tensors.get_tensors(tensors)


def open_file(
    file: Path | IO[bytes], framework: str = "numpy", to: str | None = None, **options: Unpack[DecodeOptions]
) -> TensorFile:
    """Open a file of tensors. Reads each tensor when the caller asks for it. `to` and the options are those of
    `load_file`. A file object must be seekable; it is read from its current position, and put back there after each
    read.

    >>> with libpz.open_file("model.pz") as tensors:
    ...     weights = tensors["layer.weight"]
    ...     rows = tensors.get_slice("embedding")[1000:2000]
    """
    return TensorFile(file, framework, to, **options)


class TensorFile:
    """The tensors of a file, by name. Threads may share it if it was opened by its path."""

    def __init__(
        self, file: Path | IO[bytes], framework: str = "numpy", to: str | None = None, **options: Unpack[DecodeOptions]
    ) -> None:
        if framework not in ("numpy", "torch"):
            raise OptionError(f"framework {framework!r} is not 'numpy' or 'torch'")
        if to is not None and framework != "torch":
            raise OptionError(f"{framework} has no tensors on {to!r}")
        self._framework = framework
        self._to = to
        self._archive = Archive(file, **_limits(options)) if _arrays.is_on_device(to) else None
        self._reader = Reader(file, **options)
        self._header = read_header(self._reader.read_bytes, self._reader.size)

    def keys(self) -> KeysView[str]:
        """The names, in the order of the file."""
        return self._header.tensors.keys()

    def metadata(self) -> dict[str, str]:
        """The metadata that was saved with the tensors."""
        return dict(self._header.metadata)

    def info(self, name: str) -> TensorInfo:
        """Type, shape and place of a tensor."""
        return self._header.tensors[name]

    def get_tensor(self, name: str) -> Any:
        """Read a tensor."""
        info = self._header.tensors[name]
        return self._read(name, info.dtype, info.start, info.shape)

    def get_tensors(self, names: Iterable[str]) -> dict[str, Any]:
        """Read several tensors; on a device, all at once."""
        if self._archive is None:
            return {name: self.get_tensor(name) for name in names}
        tensors, parts = {}, []
        for name in names:
            info = self._header.tensors[name]
            tensors[name], data = _arrays.empty(name, info.dtype, info.shape, self._framework, self._to)
            parts.append((self._header.data_start + info.start, data))
        self._archive.read_into(parts, _arrays.stream(self._to))
        return tensors

    def get_slice(self, name: str) -> TensorSlice:
        """Return a view of a tensor for reading parts. Only the rows that an index names are read."""
        return TensorSlice(self, name)

    def close(self) -> None:
        """Let go of the file."""
        self._reader.close()
        if self._archive is not None:
            self._archive.close()

    def __getitem__(self, name: str) -> Any:
        return self.get_tensor(name)

    def __contains__(self, name: object) -> bool:
        return name in self._header.tensors

    def __iter__(self) -> Iterator[str]:
        return iter(self._header.tensors)

    def __len__(self) -> int:
        return len(self._header.tensors)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _read(self, name: str, dtype: str, start: int, shape: tuple[int, ...]) -> Any:
        """The elements of a tensor from byte `start` of the tensors' data on."""
        tensor, memory = _arrays.empty(name, dtype, shape, self._framework, self._to)
        if self._archive is not None:
            self._archive.read_into([(self._header.data_start + start, memory)], _arrays.stream(self._to))
            return tensor
        if self._reader.read_into(self._header.data_start + start, memory) != memory.nbytes:
            raise RangeError(f"tensor {name!r} is not within the contents")
        return tensor


def _limits(options: DecodeOptions) -> LoadOptions:
    """The options without those that say where to decode."""
    limits: LoadOptions = {}
    if "threads" in options:
        limits["threads"] = options["threads"]
    if "max_output" in options:
        limits["max_output"] = options["max_output"]
    if "max_memory" in options:
        limits["max_memory"] = options["max_memory"]
    if "allow_modules" in options:
        limits["allow_modules"] = options["allow_modules"]
    return limits


class TensorSlice:
    """A tensor in a file, for reading parts."""

    def __init__(self, file: TensorFile, name: str) -> None:
        self._file = file
        self._name = name
        self._info = file.info(name)

    def get_shape(self) -> tuple[int, ...]:
        """The shape of the whole tensor."""
        return self._info.shape

    def get_dtype(self) -> str:
        """The type, as safetensors names it, such as "BF16"."""
        return self._info.dtype

    def __getitem__(self, index: Any) -> Any:
        """The same result as indexing the whole tensor. Reads only the rows that the first index names, if that is a
        number or a slice.
        """
        info = self._info
        first, *rest = index if isinstance(index, tuple) and index else (index,)
        # A bool, or an array with `__index__`, does not mean a row.
        is_row = isinstance(first, numbers.Integral) and not isinstance(first, bool)
        if not info.shape or not (is_row or isinstance(first, slice)):
            return self._file.get_tensor(self._name)[index]
        count = info.shape[0]
        row_bits = DTYPES[info.dtype].bits * math.prod(info.shape[1:])
        if isinstance(first, slice):
            rows = range(count)[first]
            start, stop = (min(rows[0], rows[-1]), max(rows[0], rows[-1]) + 1) if rows else (0, 0)
            # A negative step starts from the last row that was read.
            first = slice(None, None, rows.step)
        else:
            at = int(first)
            if not -count <= at < count:
                raise RangeError(f"row {at} is not one of {count}")
            start = at % count
            stop, first = start + 1, 0
        if row_bits % 8 != 0:
            raise TensorError(f"rows of tensor {self._name!r} do not begin at whole bytes")
        offset = info.start + start * row_bits // 8
        part = self._file._read(self._name, info.dtype, offset, (stop - start, *info.shape[1:]))
        return part[(first, *rest)]
