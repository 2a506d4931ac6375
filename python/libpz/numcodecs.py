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

__all__ = ["Pz"]


class Pz(Codec):  # type: ignore[misc]
    """Compresses each chunk with `libpz.compress`.

    `level`, `pipeline` and `filter` are those of `compress`; the filter "auto" looks at each chunk, and "none" is the
    fastest. Callers compress several chunks at the same time, so each chunk takes one thread.
    """

    codec_id = "pz"

    def __init__(self, level: int = 3, pipeline: str | None = None, filter: str = "auto") -> None:
        self.level = level
        self.pipeline = pipeline
        self.filter = filter
        self._compressor = Compressor(level, pipeline=pipeline, filter=filter, threads=1)
        self._decompressor = Decompressor(threads=1)

    def encode(self, buf: Any) -> bytes:
        """Compress the elements of an array or buffer."""
        return self._compressor.compress(ensure_contiguous_ndarray(buf))

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
        """The configuration, from which numcodecs makes this codec again."""
        return {"id": self.codec_id, "level": self.level, "pipeline": self.pipeline, "filter": self.filter}

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.level, self.pipeline, self.filter)

    def __repr__(self) -> str:
        return f"Pz(level={self.level!r}, pipeline={self.pipeline!r}, filter={self.filter!r})"


register_codec(Pz)
