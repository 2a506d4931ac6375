"""A codec for numcodecs, and so for Zarr's format 2. numcodecs finds it by its name "pz".

>>> import zarr
>>> array = zarr.create_array("a.zarr", shape=1_000_000, dtype="f4", zarr_format=2, compressors=libpz.numcodecs.Pz())
"""

from __future__ import annotations

from typing import Any

from numcodecs.abc import Codec
from numcodecs.compat import ensure_contiguous_ndarray
from numcodecs.registry import register_codec

from ._libpz import Compressor, Decompressor
from ._typed import filter_of

__all__ = ["Pz"]


class Pz(Codec):  # type: ignore[misc]
    """Compresses each chunk with `libpz.compress`.

    `level`, `pipeline` and `filter` are those of `compress`. Without `filter`, arrays of numbers get the filter of their
    type; `filter="none"` turns that off. Callers compress several chunks at the same time, so each takes one thread.
    """

    codec_id = "pz"

    def __init__(self, level: int = 3, pipeline: str | None = None, filter: str | None = None) -> None:
        self.level = level
        self.pipeline = pipeline
        self.filter = filter
        self._decompressor = Decompressor(threads=1)
        self._compressors: dict[str | None, Compressor] = {}
        # Wrong options are an error now, not at the first chunk.
        self._compressor(filter)

    def encode(self, buf: Any) -> bytes:
        """Compress the elements of an array or buffer."""
        array = ensure_contiguous_ndarray(buf)
        chosen = filter_of(array.dtype) if self.filter is None else self.filter
        return self._compressor(chosen).compress(array)

    def decode(self, buf: Any, out: Any = None) -> Any:
        """Decompress to `out`, or to a new object."""
        data = ensure_contiguous_ndarray(buf)
        if out is None:
            return self._decompressor.decompress(data)
        target = ensure_contiguous_ndarray(out)
        if self._decompressor.decompress_into(data, target) != target.nbytes:
            raise ValueError(f"the contents do not fill the {target.nbytes} bytes of out")
        return out

    def get_config(self) -> dict[str, Any]:
        """What makes this codec again."""
        config = {"id": self.codec_id, "level": self.level, "pipeline": self.pipeline, "filter": self.filter}
        return {key: value for key, value in config.items() if value is not None}

    def _compressor(self, chosen: str | None) -> Compressor:
        compressor = self._compressors.get(chosen)
        if compressor is None:
            compressor = Compressor(self.level, pipeline=self.pipeline, filter=chosen, threads=1)
            self._compressors[chosen] = compressor
        return compressor

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.level, self.pipeline, self.filter)

    def __repr__(self) -> str:
        return f"Pz(level={self.level!r}, pipeline={self.pipeline!r}, filter={self.filter!r})"


register_codec(Pz)
