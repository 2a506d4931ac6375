"""Chunks of arrays: numcodecs, Zarr; and fsspec."""

import pickle
import subprocess
import sys

import pytest

import libpz as pz

numpy = pytest.importorskip("numpy")

GRID = (numpy.sin(numpy.arange(300 * 400) / 500) * 1000).reshape(300, 400)


@pytest.mark.parametrize("dtype", ["f8", "f4", "f2", "i8", "i4", "u2", "i1", "M8[s]", "c8", "S5"])
def test_numcodecs(dtype):
    numcodecs = pytest.importorskip("numcodecs")
    from libpz.numcodecs import Pz

    codec = numcodecs.get_codec({"id": "pz", "level": 2})
    assert codec == Pz(2) and pickle.loads(pickle.dumps(codec)) == codec
    array = GRID.astype("i8").astype(dtype) if dtype == "M8[s]" else GRID.astype(dtype)
    encoded = codec.encode(array)
    assert numpy.frombuffer(codec.decode(encoded), array.dtype).tobytes() == array.tobytes()
    out = numpy.empty_like(array)
    assert codec.decode(encoded, out) is out and out.tobytes() == array.tobytes()
    if dtype in ("f8", "i8", "i4", "M8[s]"):
        assert len(encoded) < len(Pz(2, filter="none").encode(array))
    with pytest.raises(ValueError):
        codec.decode(encoded, numpy.empty(array.size + 1, array.dtype))
    with pytest.raises(pz.BufferTooSmallError):
        codec.decode(encoded, numpy.empty(array.size - 1, array.dtype))


def test_numcodecs_options():
    pytest.importorskip("numcodecs")
    from libpz.numcodecs import Pz

    assert Pz(pipeline="fse", filter="f32").get_config() == {"id": "pz", "level": 3, "pipeline": "fse", "filter": "f32"}
    assert repr(Pz(1)) == "Pz(level=1, pipeline=None, filter='auto')"
    with pytest.raises(pz.OptionError):
        Pz(11)


@pytest.mark.parametrize("shards", [None, (200, 200)])
@pytest.mark.parametrize("dtype", ["f4", "i4", "u1", ">f8"])
def test_zarr(tmp_path, dtype, shards):
    zarr = pytest.importorskip("zarr", minversion="3")
    from libpz.zarr import PzCodec

    grid = GRID.astype(dtype)
    chunks = {"chunks": (100, 100), "shards": shards}
    array = zarr.create_array(tmp_path / "a.zarr", shape=grid.shape, dtype=dtype, compressors=PzCodec(2), **chunks)
    array[:] = grid
    array[50:60, 7] = 0
    grid[50:60, 7] = 0
    # Another process finds the codec by its name.
    code = "import sys, zarr; sys.stdout.buffer.write(zarr.open_array(sys.argv[1])[20:280, 90:310:3].astype(sys.argv[2]).tobytes())"
    read = subprocess.run([sys.executable, "-c", code, tmp_path / "a.zarr", dtype], capture_output=True, check=True)
    assert read.stdout == grid[20:280, 90:310:3].tobytes()
    codec = zarr.open_array(tmp_path / "a.zarr").compressors[0]
    assert codec == PzCodec(2) and pickle.loads(pickle.dumps(codec)) == codec


def test_zarr_options(tmp_path):
    zarr = pytest.importorskip("zarr", minversion="3")
    from libpz.zarr import PzCodec

    codec = {"name": "pz", "configuration": {"level": 9, "filter": "none"}}
    array = zarr.create_array(tmp_path / "a.zarr", shape=100, dtype="f4", compressors=codec)
    array[:] = 1
    assert zarr.open_array(tmp_path / "a.zarr").compressors == (PzCodec(9, filter="none"),)
    with pytest.raises(pz.OptionError):
        PzCodec(11)


def test_zarr_format_2(tmp_path):
    zarr = pytest.importorskip("zarr", minversion="3")
    from libpz.numcodecs import Pz

    grid = GRID.astype("f4")
    array = zarr.create_array(tmp_path / "a.zarr", shape=grid.shape, dtype="f4", zarr_format=2, compressors=Pz())
    array[:] = grid
    assert (zarr.open_array(tmp_path / "a.zarr")[:] == grid).all()


def test_damaged_chunks(tmp_path):
    zarr = pytest.importorskip("zarr", minversion="3")
    from libpz.zarr import PzCodec

    array = zarr.create_array(tmp_path / "a.zarr", shape=1000, dtype="f4", compressors=PzCodec())
    array[:] = numpy.arange(1000)
    chunk = tmp_path / "a.zarr" / "c" / "0"
    damaged = bytearray(chunk.read_bytes())
    damaged[-9] ^= 1
    chunk.write_bytes(damaged)
    with pytest.raises(pz.InputError):
        array[:]


@pytest.mark.parametrize("dtype", ["f8", "u1", "M8[ns]", "U7"])
def test_chunks_are_decoded_within_their_size(tmp_path, dtype):
    """A stored chunk cannot make the reader use arbitrary memory."""
    zarr = pytest.importorskip("zarr", minversion="3")
    from libpz.zarr import PzCodec

    array = zarr.create_array(tmp_path / "a.zarr", shape=1000, dtype=dtype, chunks=500, compressors=PzCodec())
    array[:] = numpy.arange(1000).astype(dtype)
    (tmp_path / "a.zarr" / "c" / "0").write_bytes(pz.compress(bytes(200 << 20), 1))
    with pytest.raises(pz.OutputLimitError):
        array[:]
    assert (array[500:] == numpy.arange(500, 1000).astype(dtype)).all()


def test_codecs_may_make_chunks_longer(tmp_path):
    """Shards of single-element chunks, each with a checksum, compressed as a whole."""
    zarr = pytest.importorskip("zarr", minversion="3")
    from libpz.zarr import PzCodec
    from zarr.codecs import BytesCodec, Crc32cCodec, ShardingCodec, ZstdCodec

    inner = [BytesCodec(), Crc32cCodec(), PzCodec(1), ZstdCodec(), Crc32cCodec()]
    sharding = ShardingCodec(chunk_shape=(1,), codecs=inner)
    array = zarr.create(
        store=tmp_path / "a.zarr", shape=2000, dtype="u1", chunks=(2000,), codecs=[sharding, PzCodec(1)], zarr_format=3
    )
    array[:] = numpy.arange(2000).astype("u1") | 1
    assert (zarr.open_array(tmp_path / "a.zarr")[:] == numpy.arange(2000).astype("u1") | 1).all()


def test_text_of_any_length(tmp_path):
    zarr = pytest.importorskip("zarr", minversion="3")
    from libpz.zarr import PzCodec

    words = numpy.array(["a", "word " * 100_000, "üb"], dtype=numpy.dtypes.StringDType())
    array = zarr.create_array(tmp_path / "a.zarr", shape=3, dtype="str", compressors=PzCodec())
    array[:] = words
    assert list(array[:]) == list(words)


def test_fsspec(tmp_path):
    fsspec = pytest.importorskip("fsspec")
    import libpz.fsspec  # registers the compression

    path = f"file://{tmp_path}/lines.txt.pz"
    lines = [f"line {number}\n" for number in range(50_000)]
    with fsspec.open(path, "wt", compression="infer") as file:
        file.writelines(lines)
    with fsspec.open(path, "rt", compression="pz") as file:
        assert file.readlines() == lines
    with fsspec.open(path, "rb", compression="pz") as file:
        file.seek(-11, 2)
        assert file.read() == b"line 49999\n"
    with fsspec.open("memory://lines.pz", "wb", compression="pz") as file:
        file.write(b"some contents")
    with fsspec.open("memory://lines.pz", "ab", compression="pz") as file:
        file.write(b", and more")
    with fsspec.open("memory://lines.pz", "rb", compression="pz") as file:
        assert file.read() == b"some contents, and more"
    with fsspec.open(path, "at", compression="pz") as file:
        file.write("the last line\n")
    with fsspec.open(path, "rt", compression="pz") as file:
        assert file.readlines() == [*lines, "the last line\n"]
