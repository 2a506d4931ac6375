"""Saves an xarray data set with Zarr, and reads its chunks in parallel with Dask. Usage: xarray_dask.py [DAYS]"""

import sys
import tempfile
from pathlib import Path

import numpy
import xarray

from libpz.zarr import PzCodec


def weather(days: int) -> xarray.Dataset:
    """Temperatures of a region, hour by hour: days, seasons, a slope, and the noise of instruments."""
    random = numpy.random.default_rng(0)
    hours = numpy.arange(24 * days)
    daily = 5 * numpy.sin(hours / 24 * 6.28) - 12 * numpy.cos(hours / 8766 * 6.28)
    slope = numpy.linspace(0, 8, 40)[:, None] + numpy.linspace(0, 3, 60)[None, :]
    temperature = 12 + daily[:, None, None] - slope + random.normal(0, 0.05, (hours.size, 40, 60))
    return xarray.Dataset(
        {"temperature": (("time", "y", "x"), temperature.round(2).astype("f4"))},
        coords={"time": numpy.datetime64("2026-01-01T00", "ns") + hours.astype("timedelta64[h]")},
    )


def main(days: int = 365) -> None:
    """Write a data set, and compute with it chunk by chunk."""
    data = weather(days)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "weather.zarr")
        # A chunk for each week: reading a day opens one of them.
        encoding = {"temperature": {"chunks": (24 * 7, 40, 60), "compressors": (PzCodec(level=3),)}}
        data.to_zarr(path, encoding=encoding, zarr_format=3, consolidated=False)

        with xarray.open_zarr(path, chunks={}, consolidated=False) as lazy:
            # Dask computes this on all cores, or on the machines of a cluster where libpz is installed.
            means = lazy["temperature"].mean(("y", "x")).compute()
            day = lazy["temperature"].sel(time="2026-01-03").compute()
        expected = data["temperature"]
        assert numpy.allclose(means, expected.mean(("y", "x")), atol=1e-3)
        assert day.identical(expected.sel(time="2026-01-03"))
        size = sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
        warmest = str(means["time"][means.argmax("time")].values)[:13]
        print(f"{data.nbytes:,} bytes became {size:,}; the warmest hour was {warmest}")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:2]))
