"""A codec for Zarr's format 3. Zarr finds it by its name "pz".

>>> import zarr
>>> array = zarr.create_array("a.zarr", shape=1_000_000, dtype="f4", compressors=libpz.zarr.PzCodec())
"""

from __future__ import annotations

import asyncio
import math
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, Self

from zarr.abc.codec import BytesBytesCodec
from zarr.core.common import parse_named_configuration

from ._libpz import Compressor, Decompressor

if TYPE_CHECKING:
    from zarr.core.array_spec import ArraySpec
    from zarr.core.buffer import Buffer

__all__ = ["PzCodec"]


_OVERHEAD = 128
"""The most bytes that other codecs may add for each element before a chunk comes to `PzCodec`: at worst, sharding makes
inner chunks of single elements, each with headers, a checksum and an index entry."""

_CONSTANT_OVERHEAD = 1 << 16
"""The most bytes that they may add for each chunk."""


def _max_size(chunk_spec: ArraySpec) -> int | None:
    """The most bytes that a chunk can have when it comes to this codec; `None` if its elements differ in length."""
    item_size: int | None = getattr(chunk_spec.dtype, "item_size", None)
    if item_size is None:
        return None
    elements: int = math.prod(chunk_spec.shape)
    return elements * (item_size + _OVERHEAD) + _CONSTANT_OVERHEAD


@lru_cache(maxsize=8)
def _decompressor(max_size: int | None) -> Decompressor:
    return Decompressor(threads=1, max_output=max_size)


@dataclass(frozen=True)
class PzCodec(BytesBytesCodec):
    """Compresses each chunk, or each inner chunk of a shard, with `libpz.compress`.

    `level`, `pipeline` and `filter` are those of `compress`; the filter "auto" looks at each chunk, and "none" is the
    fastest. Zarr works on several chunks at the same time, so each chunk takes one thread. If a stored chunk is far
    longer than the array's chunks, decoding raises an `OutputLimitError`.
    """

    level: int = 3
    pipeline: str | None = None
    filter: str = "auto"

    is_fixed_size = False

    def __post_init__(self) -> None:
        # Raise errors for wrong options now, not at the first chunk.
        _ = self._compressor

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        """Make the codec that an array's metadata describe."""
        configuration: Any
        _, configuration = parse_named_configuration(data, "pz", require_configuration=False)
        return cls(**(configuration or {}))

    def to_dict(self) -> dict[str, Any]:
        """Describe the codec for an array's metadata."""
        configuration = {"level": self.level, "pipeline": self.pipeline, "filter": self.filter}
        return {"name": "pz", "configuration": configuration}

    def compute_encoded_size(self, input_byte_length: int, chunk_spec: ArraySpec) -> int:
        """Raises, because the size is unknown before compression."""
        raise NotImplementedError

    @cached_property
    def _compressor(self) -> Compressor:
        return Compressor(self.level, pipeline=self.pipeline, filter=self.filter, threads=1)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.level, self.pipeline, self.filter)

    def _encode_sync(self, chunk_bytes: Buffer, chunk_spec: ArraySpec) -> Buffer:
        compressed = self._compressor.compress(chunk_bytes.as_numpy_array())
        return chunk_spec.prototype.buffer.from_bytes(compressed)

    def _decode_sync(self, chunk_bytes: Buffer, chunk_spec: ArraySpec) -> Buffer:
        contents = _decompressor(_max_size(chunk_spec)).decompress(chunk_bytes.as_numpy_array())
        return chunk_spec.prototype.buffer.from_bytes(contents)

    async def _encode_single(self, chunk_bytes: Buffer, chunk_spec: ArraySpec) -> Buffer:
        return await asyncio.to_thread(self._encode_sync, chunk_bytes, chunk_spec)

    async def _decode_single(self, chunk_bytes: Buffer, chunk_spec: ArraySpec) -> Buffer:
        return await asyncio.to_thread(self._decode_sync, chunk_bytes, chunk_spec)
