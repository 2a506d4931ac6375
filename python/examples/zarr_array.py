"""Writes an array with Zarr, once with each codec, and compares sizes and speeds.

Usage: zarr_array.py [ARRAY.npy]
Without a file it makes a field that looks like one of a weather model.
"""

import sys
import tempfile
import time
from pathlib import Path

import numpy
import zarr
from zarr.codecs import BloscCodec, ZstdCodec

from libpz.zarr import PzCodec

CODECS = {
    "pz -1": PzCodec(1),
    "pz -3": PzCodec(3),
    "pz -3, no filter": PzCodec(3, filter="none"),
    "zstd -3": ZstdCodec(level=3),
    "blosc zstd -3, shuffle": BloscCodec(cname="zstd", clevel=3, shuffle="shuffle"),
    "blosc zstd -5, bit shuffle": BloscCodec(cname="zstd", clevel=5, shuffle="bitshuffle"),
    "blosc lz4 -5, shuffle": BloscCodec(cname="lz4", clevel=5, shuffle="shuffle"),
}


def field(side: int) -> numpy.ndarray:
    """Temperatures: a wave from pole to pole, weather on it, and the noise of instruments."""
    random = numpy.random.default_rng(0)
    latitude = numpy.linspace(-1.5, 1.5, side)[:, None]
    longitude = numpy.linspace(0, 6.28, side)[None, :]
    weather = sum(
        numpy.sin(k * longitude + random.uniform(0, 6.28)) * numpy.cos(k * latitude) / k for k in range(1, 12)
    )
    return (288 + 30 * numpy.cos(latitude) + 3 * weather + random.normal(0, 0.02, (side, side))).astype("f4")


def measure(array: numpy.ndarray, codec: object, path: Path) -> tuple[float, float, float]:
    """Ratio, and megabytes a second to write and to read, the best of three times."""
    *others, height, width = array.shape
    chunks = (*(1 for _ in others), min(height, 512), min(width, 512))
    options = {"shape": array.shape, "dtype": array.dtype, "chunks": chunks, "compressors": codec, "overwrite": True}
    writing, reading = [], []
    for _ in range(3):
        begun = time.perf_counter()
        zarr.create_array(path, **options)[...] = array
        written = time.perf_counter()
        restored = zarr.open_array(path)[...]
        reading.append(time.perf_counter() - written)
        writing.append(written - begun)
        assert restored.tobytes() == array.tobytes()
    size = sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
    return array.nbytes / size, array.nbytes / 1e6 / min(writing), array.nbytes / 1e6 / min(reading)


def main(path: str | None = None, side: int = 4096) -> None:
    """Print a table."""
    array = field(side) if path is None else numpy.load(path)
    print(f"{array.shape} {array.dtype}, {array.nbytes:,} bytes")
    print(f"{'codec':28}{'ratio':>8}{'write MB/s':>12}{'read MB/s':>12}")
    with tempfile.TemporaryDirectory() as folder:
        for name, codec in CODECS.items():
            ratio, write, read = measure(array, codec, Path(folder) / name)
            print(f"{name:28}{ratio:8.3f}{write:12.0f}{read:12.0f}")


if __name__ == "__main__":
    main(*sys.argv[1:2])
