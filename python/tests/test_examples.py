"""The examples run as they stand. Those of the README and the guide run in `cli/tests/docs.rs`."""

import importlib.util
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent.parent


def example(name, *packages):
    for package in packages:
        pytest.importorskip(package)
    spec = importlib.util.spec_from_file_location(name, FOLDER / "examples" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_zarr_array(capsys):
    example("zarr_array", "numpy", "zarr").main(side=600)
    assert "pz -3" in capsys.readouterr().out


def test_tables(capsys):
    example("tables", "pandas", "pyarrow").main(20_000)
    assert "Parquet" in capsys.readouterr().out


def test_xarray_dask(capsys):
    example("xarray_dask", "xarray", "dask", "zarr").main(20)
    assert "the warmest hour" in capsys.readouterr().out


def test_torch_tensors(capsys):
    example("torch_tensors", "torch").main(256)
    assert "ids: " in capsys.readouterr().out
