"""Dictionaries of arrays in a file."""

import io
import json
import os
import sys
import threading
import types

import pytest

import libpz as pz

numpy = pytest.importorskip("numpy")

RANDOM = numpy.random.default_rng(1)
TENSORS = {
    "weights": RANDOM.normal(size=(300, 200)).astype("f4"),
    "large": RANDOM.normal(size=(1200, 1000)).astype("f4"),
    "half": RANDOM.normal(size=5000).astype("f2"),
    "double": numpy.arange(4000, dtype="f8"),
    "steps": numpy.arange(10_000, dtype="i8").reshape(10, 10, 100),
    "bytes": RANDOM.integers(0, 255, 777, dtype="u1"),
    "flags": RANDOM.integers(0, 2, 100).astype(bool),
    "scalar": numpy.array(2.5, "f4"),
    "none": numpy.empty((0, 7), "i2"),
    "waves": numpy.exp(1j * numpy.arange(100)).astype("c8"),
    "übung": numpy.arange(5, dtype="u2"),
}


@pytest.fixture
def path(tmp_path):
    pz.save_file(TENSORS, tmp_path / "tensors.pz", {"author": "a test"})
    return tmp_path / "tensors.pz"


def equal(loaded):
    assert loaded.keys() == TENSORS.keys()
    for name, tensor in TENSORS.items():
        assert loaded[name].dtype == tensor.dtype and loaded[name].shape == tensor.shape, name
        assert loaded[name].tobytes() == tensor.tobytes(), name


def test_save_and_load(path):
    equal(pz.load_file(path))
    target = io.BytesIO()
    pz.save_file(TENSORS, target, {"author": "a test"})
    assert target.getvalue() == path.read_bytes()
    target.seek(0)
    equal(pz.load_file(target))
    assert os.listdir(path.parent) == [path.name]


def test_the_contents_are_a_safetensors_file(path, tmp_path):
    safetensors = pytest.importorskip("safetensors.numpy")
    equal(safetensors.load(pz.open(path).read()))
    pz.to_safetensors(path, tmp_path / "plain.safetensors")
    equal(safetensors.load_file(tmp_path / "plain.safetensors"))
    safetensors.save_file(TENSORS, tmp_path / "other.safetensors", {"author": "another"})
    pz.from_safetensors(tmp_path / "other.safetensors", tmp_path / "other.pz", level=1)
    equal(pz.load_file(tmp_path / "other.pz"))
    assert pz.open(tmp_path / "other.pz").read() == (tmp_path / "other.safetensors").read_bytes()
    with pz.open_file(tmp_path / "other.pz") as tensors:
        assert tensors.metadata() == {"author": "another"}


def test_each_type_gets_its_filter(path):
    frames = pz.list(path, blocks=True)
    with pz.open_file(path) as tensors:
        large = tensors.info("large")
    sizes = {frame.content_size: frame for frame in frames}
    assert sizes[large.stop - large.start].blocks[0].filters == "rotate4,transpose4"
    assert sizes[large.stop - large.start].pipeline == "fse"
    assert path.stat().st_size < 0.9 * sum(tensor.nbytes for tensor in TENSORS.values())
    target = io.BytesIO()
    pz.save_file(TENSORS, target, filter="none", pipeline="store")
    target.seek(0)
    assert {frame.pipeline for frame in pz.list(target)} == {"store"}


def test_lazily(path):
    with pz.open_file(path) as tensors:
        assert set(tensors.keys()) == set(tensors) == set(TENSORS) and len(tensors) == len(TENSORS)
        assert tensors.metadata() == {"author": "a test"}
        assert tensors.info("half").dtype == "F16" and tensors.info("half").shape == (5000,)
        assert numpy.array_equal(tensors["steps"], TENSORS["steps"])
        assert "steps" in tensors and "absent" not in tensors
        with pytest.raises(KeyError):
            tensors["absent"]
    with pytest.raises(ValueError, match="closed"):
        tensors["steps"]


@pytest.mark.parametrize(
    "index",
    [
        numpy.s_[3],
        numpy.s_[-1],
        numpy.s_[2:5],
        numpy.s_[:],
        numpy.s_[5:2],
        numpy.s_[1:9:3],
        numpy.s_[8:1:-3],
        numpy.s_[::-1],
        numpy.s_[2:4, 1],
        numpy.s_[4, 2:8, ::7],
        numpy.s_[...],
        numpy.s_[[1, 3]],
        numpy.s_[None, 2],
        numpy.int64(2),
    ],
)
def test_parts(path, index):
    with pz.open_file(path) as tensors:
        part = tensors.get_slice("steps")
        assert part.get_shape() == (10, 10, 100) and part.get_dtype() == "I64"
        assert numpy.array_equal(part[index], TENSORS["steps"][index])


@pytest.mark.parametrize(
    "index",
    [
        True,
        False,
        numpy.True_,
        numpy.array(2),
        numpy.array([2]),
        numpy.array([0, 2]),
        numpy.arange(10) % 3 == 0,
        [True, False] * 5,
        (),
        (numpy.array([1]), 2),
        (3, ..., numpy.array([5, 6])),
        (3, slice(None), [5, 6]),
        (slice(None, None, -2), numpy.array([1, 0])),
    ],
    ids=repr,
)
def test_parts_as_the_whole_array_would_give_them(path, index):
    with pz.open_file(path) as tensors:
        part, whole = tensors.get_slice("steps")[index], TENSORS["steps"][index]
        assert part.shape == whole.shape and numpy.array_equal(part, whole)
        assert tensors.get_slice("scalar")[()] == TENSORS["scalar"]


def test_parts_that_are_not_there(path):
    with pz.open_file(path) as tensors:
        for index in (10, -11):
            with pytest.raises(IndexError, match="not one of 10"):
                tensors.get_slice("steps")[index]
        with pytest.raises(IndexError):
            tensors.get_slice("scalar")[0]
        assert tensors.get_slice("none")[:].shape == (0, 7)


def test_threads_share_a_file(path):
    failed = []
    with pz.open_file(path) as tensors:

        def work():
            for name, tensor in TENSORS.items():
                if tensors[name].tobytes() != tensor.tobytes():
                    failed.append(name)

        threads = [threading.Thread(target=work) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not failed


def test_order_and_layout_of_arrays():
    grid = numpy.arange(600, dtype=">i4").reshape(20, 30)
    target = io.BytesIO()
    pz.save_file({"transposed": grid.T, "part": grid[::2, ::3]}, target)
    target.seek(0)
    loaded = pz.load_file(target)
    assert numpy.array_equal(loaded["transposed"], grid.T) and loaded["transposed"].dtype == "<i4"
    assert numpy.array_equal(loaded["part"], grid[::2, ::3])


def contents(fields, data=b""):
    text = fields if isinstance(fields, bytes) else json.dumps(fields).encode()
    return len(text).to_bytes(8, "little") + text + data


def tensor(dtype="U8", shape=(4,), offsets=(0, 4)):
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets}


@pytest.mark.parametrize(
    "malformed",
    [
        b"",
        b"short",
        (1 << 63).to_bytes(8, "little") + b"{}",
        contents(b"{"),
        contents(b"[]"),
        contents(b"[" * 100_000),
        contents(b'{"a":1,"a":2}'),
        contents(b"\xff\xfe"),
        contents({"__metadata__": {"a": 1}}),
        contents({"__metadata__": [1]}),
        contents({"__metadata__": []}),
        contents({"__metadata__": {"a": "\ud800"}}),
        contents({"\ud800": tensor()}, bytes(4)),
        contents('{"a":1}'.encode("utf-16-le")),
        contents({"a": 3}, bytes(4)),
        contents({"a": tensor(dtype="U7")}, bytes(4)),
        contents({"a": tensor(dtype=[])}, bytes(4)),
        contents({"a": tensor(shape=(5,))}, bytes(4)),
        contents({"a": tensor(shape=(-4,))}, bytes(4)),
        contents({"a": tensor(shape=(1 << 62, 1 << 62))}, bytes(4)),
        contents({"a": tensor(shape=(1 << 62, 1 << 62, 0), offsets=(0, 0))}),
        contents({"a": tensor(shape=(0, 1 << 64), offsets=(0, 0))}),
        contents({"a": tensor(shape=[(1 << 64) - 1] * 80_000)}, bytes(4)),
        contents({"a": tensor(dtype=[0] * 100_000)}, bytes(4)),
        contents({"a": tensor(shape="4")}, bytes(4)),
        contents({"a": tensor(shape=(True, 4))}, bytes(4)),
        contents({"a": tensor(offsets=(4, 0))}, bytes(4)),
        contents({"a": tensor(offsets=(0, 4, 8))}, bytes(4)),
        contents({"a": tensor(offsets=(1, 5))}, bytes(5)),
        contents({"a": tensor(), "b": tensor()}, bytes(8)),
        contents({"a": tensor()}, bytes(5)),
        contents({"a": tensor()}, bytes(3)),
    ],
)
def test_malformed_headers(malformed, tmp_path):
    with pytest.raises(pz.TensorError):
        pz.load_file(io.BytesIO(pz.compress(malformed)))
    (tmp_path / "bad.safetensors").write_bytes(malformed)
    with pytest.raises(pz.TensorError):
        pz.from_safetensors(tmp_path / "bad.safetensors", tmp_path / "bad.pz")
    assert os.listdir(tmp_path) == ["bad.safetensors"]


@pytest.mark.parametrize(
    ("name", "metadata", "message"),
    [
        ("a", {"epoch": 3}, "the value of 'epoch' in the metadata is not text but 3"),
        ("a", {"note": None}, "the value of 'note' in the metadata is not text but None"),
        ("a", {"x": {"y": 1}}, "the value of 'x' in the metadata is not text but {'y': 1}"),
        ("a", {3: "epoch"}, "a key of the metadata is not text but 3"),
        ("a", {"x": "\ud800"}, "the value of 'x' in the metadata is not valid text"),
        ("a", [("x", "y")], "the metadata are no dictionary but"),
        ("__metadata__", None, "no tensor may have the name '__metadata__'"),
        (1, None, "the name of a tensor is not text but 1"),
        (None, None, "the name of a tensor is not text but None"),
        (b"a", None, "the name of a tensor is not text but b'a'"),
        ("\udcff", None, "the name of a tensor is not valid text"),
    ],
)
def test_files_that_could_not_be_read_are_not_written(tmp_path, name, metadata, message):
    for tensors in ({name: numpy.ones(1)}, {name: numpy.ones(1), "1": numpy.ones(1)}):
        for file in (tmp_path / "a.pz", io.BytesIO()):
            with pytest.raises(pz.TensorError, match=message):
                pz.save_file(tensors, file, metadata)
    assert file.getvalue() == b"" and os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("shape", "message"), [((1,) * 80_000, "maximum supported dimension"), ((1 << 61, 0), "too big|dimension")]
)
def test_shapes_that_numpy_does_not_have(shape, message):
    count = 0 if 0 in shape else 1
    data = contents({"a": tensor("F64", shape, (0, 8 * count))}, bytes(8 * count))
    with pz.open_file(io.BytesIO(pz.compress(data))) as tensors:
        assert tensors.info("a").shape == shape
        with pytest.raises(pz.TensorError, match=message):
            tensors["a"]


def test_rows_are_not_counted_one_by_one():
    data = contents({"a": tensor(shape=(1 << 50, 0), offsets=(0, 0))})
    with pz.open_file(io.BytesIO(pz.compress(data))) as tensors:
        assert tensors.get_slice("a")[:].shape == (1 << 50, 0)
        assert tensors.get_slice("a")[::-3].shape == ((1 << 50) // 3 + 1, 0)


def test_refused(path, tmp_path):
    with pytest.raises(pz.OptionError, match="framework 'jax'"):
        pz.load_file(path, "jax")
    with pytest.raises(pz.TensorError, match="'text' has the type"):
        pz.save_file({"text": numpy.array(["a", "b"])}, tmp_path / "text.pz")
    with pytest.raises(pz.TensorError, match="'days' has the type datetime64"):
        pz.save_file({"days": numpy.zeros(3, "M8[D]")}, tmp_path / "days.pz")
    with pytest.raises(pz.OptionError):
        pz.save_file(TENSORS, tmp_path / "level.pz", level=12)
    with pytest.raises(pz.NotPzError):
        (tmp_path / "plain").write_bytes(b"plain text, not compressed")
        pz.load_file(tmp_path / "plain")
    damaged = bytearray(path.read_bytes())
    damaged[len(damaged) // 2] ^= 1
    with pytest.raises(pz.CorruptError):
        pz.load_file(io.BytesIO(damaged))
    with pytest.raises(pz.OutputLimitError):
        pz.load_file(path, max_output=1000)
    assert sorted(os.listdir(tmp_path)) == ["plain", "tensors.pz"]


def test_types_that_numpy_lacks():
    halves = contents({"a": tensor("BF16", (2,))}, bytes(4))
    try:
        import ml_dtypes
    except ImportError:
        with pytest.raises(pz.TensorError, match="BF16, for which NumPy needs the package ml_dtypes"):
            pz.load_file(io.BytesIO(pz.compress(halves)))
    else:
        assert pz.load_file(io.BytesIO(pz.compress(halves)))["a"].dtype == ml_dtypes.bfloat16
    with pytest.raises(pz.TensorError, match="F4, which numpy lacks"):
        pz.load_file(io.BytesIO(pz.compress(contents({"a": tensor("F4", (8,))}, bytes(4)))))


@pytest.mark.parametrize("name", ["bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu"])
def test_types_of_ml_dtypes(name):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    array = numpy.arange(-8, 8).astype(getattr(ml_dtypes, name)).reshape(4, 4)
    file = io.BytesIO()
    pz.save_file({"a": array}, file)
    file.seek(0)
    with pz.open_file(file) as tensors:
        assert tensors["a"].dtype == array.dtype and tensors["a"].tobytes() == array.tobytes()
        assert tensors.get_slice("a")[1:3].tobytes() == array[1:3].tobytes()


class Lazy:
    """Like conjugated or negated torch tensors: their memory does not hold their values."""

    __module__ = "torch"

    def __init__(self, array, is_conj=False, is_neg=False):
        self.array, self.is_conj, self.is_neg = array, is_conj, is_neg
        self.dtype, self.shape = f"torch.{array.dtype.name}", array.shape

    def detach(self):
        return self

    cpu = contiguous = detach

    def resolve_conj(self):
        return Lazy(self.array.conj() if self.is_conj else self.array, is_neg=self.is_neg)

    def resolve_neg(self):
        return Lazy(-self.array if self.is_neg else self.array, is_conj=self.is_conj)

    def reshape(self, count):
        return Lazy(self.array.reshape(count), self.is_conj, self.is_neg)

    def view(self, dtype):
        assert not self.is_conj and not self.is_neg, "torch refuses this"
        return Lazy(self.array.view(dtype))

    def numpy(self):
        return self.array


def test_lazy_tensors(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", types.SimpleNamespace(uint8="u1"))
    waves, file = TENSORS["waves"], io.BytesIO()
    pz.save_file({"conjugated": Lazy(waves, is_conj=True), "negated": Lazy(waves.imag.copy(), is_neg=True)}, file)
    file.seek(0)
    loaded = pz.load_file(file)
    assert numpy.array_equal(loaded["conjugated"], waves.conj()) and numpy.array_equal(loaded["negated"], -waves.imag)


def test_torch(tmp_path):
    torch = pytest.importorskip("torch", reason="torch is not installed: its tensors are not tested")
    tensors = {
        "bf16": torch.randn(100, 50).to(torch.bfloat16),
        "f8": torch.randn(64).to(torch.float8_e4m3fn),
        "strided": torch.arange(600).reshape(20, 30).T,
        "scalar": torch.tensor(3.5),
        "none": torch.empty(0, 3),
        "learned": torch.nn.Parameter(torch.randn(7)),
        "conjugated": torch.randn(5, dtype=torch.complex64).conj(),
        "negated": torch.randn(5, dtype=torch.complex64).conj().imag,
    }
    pz.save_file(tensors, tmp_path / "torch.pz")
    loaded = pz.load_file(tmp_path / "torch.pz", "torch")
    for name, tensor in tensors.items():
        assert loaded[name].dtype == tensor.dtype
        # torch does not compare floats of eight bits.
        same_bits = [each.view(torch.uint8) if name == "f8" else each for each in (loaded[name], tensor)]
        assert torch.equal(*same_bits)
    with pz.open_file(tmp_path / "torch.pz", "torch") as file:
        assert torch.equal(file.get_slice("bf16")[10:20, 3], tensors["bf16"][10:20, 3])
    on_device = "cuda" if torch.cuda.is_available() else "cpu"
    for name, tensor in pz.load_file(tmp_path / "torch.pz", "torch", on_device).items():
        assert tensor.device.type == on_device
        same_bits = [each.cpu().view(torch.uint8) if name == "f8" else each.cpu() for each in (tensor, tensors[name])]
        assert torch.equal(*same_bits)


def test_arrays_of_numpy_are_on_the_host(tmp_path):
    pz.save_file({"a": numpy.zeros(3)}, tmp_path / "a.pz")
    for read in (pz.load_file, pz.open_file):
        with pytest.raises(pz.OptionError, match="numpy has no tensors on 'cuda'"):
            read(tmp_path / "a.pz", to="cuda")
