"""The header of a `.safetensors` file: its length in eight bytes, then names, types and shapes as JSON."""

from __future__ import annotations

import json
import reprlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ._errors import TensorError

METADATA = "__metadata__"
"""The key of the metadata in the header."""

MAX_HEADER = 100_000_000
"""The most bytes of JSON that safetensors permits."""

MAX_NUMBER = (1 << 64) - 1
"""The largest number of elements, and of bytes, that safetensors permits."""


@dataclass(frozen=True, slots=True)
class DType:
    """A type of elements."""

    bits: int
    """Bits of an element."""
    numpy: str | None = None
    """The name in NumPy or in the package ml_dtypes."""
    torch: str | None = None
    """The name in torch."""
    pipeline: str | None = None
    """The default pipeline for this type."""
    filter: str | None = None
    """The default filter for this type."""


DTYPES = {
    "F64": DType(64, "float64", "float64", "fse", "f64"),
    "F32": DType(32, "float32", "float32", "fse", "f32"),
    "F16": DType(16, "float16", "float16", "fse", "f16"),
    "BF16": DType(16, "bfloat16", "bfloat16", "fse", "bf16"),
    "F8_E4M3": DType(8, "float8_e4m3fn", "float8_e4m3fn", "fse"),
    "F8_E5M2": DType(8, "float8_e5m2", "float8_e5m2", "fse"),
    "F8_E8M0": DType(8, "float8_e8m0fnu", "float8_e8m0fnu"),
    "F6_E3M2": DType(6),
    "F6_E2M3": DType(6),
    "F4": DType(4),
    "C64": DType(64, "complex64", "complex64", "fse", "f32"),
    "I64": DType(64, "int64", "int64", filter="auto"),
    "I32": DType(32, "int32", "int32", filter="auto"),
    "I16": DType(16, "int16", "int16", filter="auto"),
    "I8": DType(8, "int8", "int8"),
    "U64": DType(64, "uint64", "uint64", filter="auto"),
    "U32": DType(32, "uint32", "uint32", filter="auto"),
    "U16": DType(16, "uint16", "uint16", filter="auto"),
    "U8": DType(8, "uint8", "uint8"),
    "BOOL": DType(8, "bool", "bool"),
}
"""The types of safetensors, by their names there."""


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """Type, shape and place of a tensor."""

    dtype: str
    """The type, as safetensors names it, such as "BF16"."""
    shape: tuple[int, ...]
    """The lengths of its dimensions."""
    start: int
    """Offset of its first byte among the tensors' data."""
    stop: int
    """One past its last byte."""


@dataclass(frozen=True, slots=True)
class Header:
    """The tensors of a file, and its metadata."""

    tensors: dict[str, TensorInfo]
    """By name, in the order of their data."""
    metadata: dict[str, str]
    """The metadata."""
    data_start: int = 0
    """Offset of the tensors' data in the contents, once the header has been written or read."""

    def to_bytes(self) -> bytes:
        """The header as it is in the file."""
        fields: dict[str, Any] = {METADATA: self.metadata} if self.metadata else {}
        for name, info in self.tensors.items():
            fields[name] = {"dtype": info.dtype, "shape": info.shape, "data_offsets": [info.start, info.stop]}
        text = json.dumps(fields, separators=(",", ":"), ensure_ascii=False).encode()
        # Data begin at a multiple of eight bytes.
        text += b" " * (-len(text) % 8)
        if len(text) > MAX_HEADER:
            raise TensorError(f"names, types and shapes take {len(text)} bytes, more than {MAX_HEADER}")
        return len(text).to_bytes(8, "little") + text


def check_text(names: Iterable[Any], metadata: Any) -> None:
    """Check the names of tensors and the metadata, before writing or after reading."""
    for name in names:
        _check_text(name, "the name of a tensor")
        if name == METADATA:
            raise TensorError(f"no tensor may have the name {METADATA!r}, which stands for the metadata")
    if not isinstance(metadata, Mapping):
        raise TensorError(f"the metadata are no dictionary but {reprlib.repr(metadata)}")
    for key, value in metadata.items():
        _check_text(key, "a key of the metadata")
        _check_text(value, f"the value of {reprlib.repr(key)} in the metadata")


def read_header(read: Callable[[int, int], bytes], size: int) -> Header:
    """Read and check the header of contents of `size` bytes. `read` takes an offset and a length."""
    length = int.from_bytes(read(0, 8), "little")
    if size < 8 or length > min(MAX_HEADER, size - 8):
        raise TensorError("the file does not hold tensors: its header is too long or missing")
    try:
        fields = json.loads(read(8, length).decode(), object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:
        raise TensorError(f"the header of the tensors is malformed: {error}") from None
    if not isinstance(fields, dict):
        raise TensorError("the header of the tensors is malformed: no object")
    metadata = fields.pop(METADATA, None)
    metadata = {} if metadata is None else metadata
    check_text(fields, metadata)
    infos = [(name, _info(name, entry)) for name, entry in fields.items()]
    infos.sort(key=lambda item: (item[1].start, item[1].stop))
    at = 0
    for name, info in infos:
        if info.start != at:
            raise TensorError(f"tensor {name!r} does not begin where the one before ends")
        at = info.stop
    if at != size - 8 - length:
        raise TensorError(f"the tensors end at byte {at} of {size - 8 - length}")
    return Header(dict(infos), metadata, 8 + length)


def _check_text(value: Any, what: str) -> None:
    if not isinstance(value, str):
        raise TensorError(f"{what} is not text but {reprlib.repr(value)}")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise TensorError(f"{what} is not valid text: {reprlib.repr(value)}: {error.reason}") from None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise ValueError("a name occurs twice")
    return fields


def _info(name: str, entry: Any) -> TensorInfo:
    try:
        dtype, shape, (start, stop) = entry["dtype"], entry["shape"], entry["data_offsets"]
        numbers = [*shape, start, stop]
    except (KeyError, TypeError, ValueError):
        raise TensorError(f"tensor {name!r} lacks type, shape or place") from None
    # In Python a bool is an int, but it is not a length.
    if not all(type(number) is int and 0 <= number <= MAX_NUMBER for number in numbers):
        raise TensorError(f"shape or place of tensor {name!r} are not numbers")
    known = DTYPES.get(dtype) if isinstance(dtype, str) else None
    if known is None:
        raise TensorError(f"tensor {name!r} has the unknown type {reprlib.repr(dtype)}")
    elements = 1
    for side in shape:
        elements *= side
        # safetensors refuses this even if a later side is 0. Stop here: the product of all sides could get huge and
        # slow.
        if elements > MAX_NUMBER:
            raise TensorError(f"tensor {name!r} has too many elements")
    if known.bits * elements != 8 * (stop - start):
        raise TensorError(f"tensor {name!r} has {stop - start} bytes, which its type and shape do not")
    return TensorInfo(dtype, tuple(shape), start, stop)
