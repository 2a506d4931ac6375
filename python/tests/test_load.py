"""Contents in the memory of devices and of the host, and tensors as inputs."""

import functools
import gc
import http.server
import multiprocessing
import os
import threading
import urllib.parse

import pytest

import libpz as pz

numpy = pytest.importorskip("numpy")

CONTENTS = b"".join(b"row %d of a table\n" % number for number in range(40_000))
DEVICES = ["cpu", "auto", *(name for name in ("opencl", "webgpu") if any(d.device.startswith(name) for d in pz.devices()))]


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "rows of a table.pz"
    with pz.open(path, "wb", 1, block_size=1 << 16) as file:
        file.write(CONTENTS)
    return path


@pytest.mark.parametrize("device", DEVICES)
def test_whole_and_ranges(path, device):
    buffer = pz.load(path, device)
    assert len(buffer) == buffer.nbytes == len(CONTENTS)
    assert buffer.tobytes() == CONTENTS
    assert buffer.device.split(":")[0] == ("cpu" if device == "auto" else device)
    for range_ in [slice(70_000, 140_001), range(5, 6), (65_535, None), (None, 3), slice(9, 9), None]:
        start, stop = range_ if isinstance(range_, tuple) else (getattr(range_, "start", None), getattr(range_, "stop", None))
        assert pz.load(path, device, range_).tobytes() == CONTENTS[start:stop]


@pytest.mark.parametrize("device", DEVICES)
def test_into_a_buffer(path, device):
    buffer = pz.DeviceBuffer(1000, device)
    assert pz.load(path, range=(3, 1003), out=buffer) is buffer
    assert buffer.tobytes() == CONTENTS[3:1003]
    with pytest.raises(pz.BufferTooSmallError) as caught:
        pz.load(path, range=(0, 1001), out=buffer)
    assert (caught.value.needed, caught.value.len) == (1001, 1000)
    with pytest.raises(ValueError, match="out has 1000"):
        pz.load(path, range=(0, 999), out=buffer)
    assert buffer.tobytes() == CONTENTS[3:1003]


@pytest.mark.parametrize("device", DEVICES)
def test_many_parts_at_once(path, device):
    archive = pz._libpz.Archive(path)
    assert archive.size == len(CONTENTS)
    buffers = [pz.DeviceBuffer(size, device) for size in (1, 70_000, 0, 300)]
    memory, array = bytearray(100), numpy.zeros(5000, "u1")
    outs = [*buffers, memory, array, OnlyDlpack(numpy.zeros(10, "u1"))]
    parts = [(1000 * number + 3, out) for number, out in enumerate(outs)]
    archive.read_into(parts)
    for (start, _), buffer in zip(parts, buffers):
        assert buffer.tobytes() == CONTENTS[start : start + len(buffer)]
    assert memory == CONTENTS[4003:4103] and array.tobytes() == CONTENTS[5003:10003]
    assert outs[-1].array.tobytes() == CONTENTS[6003:6013]
    with pytest.raises(ValueError, match="twice"):
        archive.read_into([(0, buffers[1]), (5, buffers[1])])
    with pytest.raises(pz.RangeError):
        archive.read_into([(len(CONTENTS), memory)])
    with pytest.raises(BufferError):
        archive.read_into([(0, bytes(3))])
    archive.close()
    with pytest.raises(ValueError, match="closed"):
        archive.read_into(parts)


def test_host_memory_is_shared():
    buffer = pz.DeviceBuffer(6, "cpu")
    view = memoryview(buffer)
    assert (view.nbytes, view.readonly, view.contiguous) == (6, False, True)
    view[:] = b"abcdef"
    assert buffer.tobytes() == b"abcdef" and repr(buffer) == "<libpz.DeviceBuffer of 6 bytes on cpu>"
    assert buffer.__dlpack_device__() == (1, 0)
    arrays = [numpy.frombuffer(buffer, "u1"), numpy.from_dlpack(buffer), numpy.asarray(view)]
    arrays[1][0] = ord("z")
    del buffer, view
    gc.collect()
    # The arrays keep the memory.
    assert all(array.tobytes() == b"zbcdef" for array in arrays)
    assert not hasattr(pz.DeviceBuffer(1, "cpu"), "__cuda_array_interface__")
    assert len(memoryview(pz.DeviceBuffer(0, "cpu"))) == 0


def test_tensors_that_nobody_takes_are_freed():
    buffer = pz.DeviceBuffer(100, "cpu")
    for version in [None, (0, 8), (1, 0), (2, 1)]:
        for _ in range(100):
            buffer.__dlpack__(max_version=version)
    for _ in range(100):
        buffer.__dlpack__(copy=True)
    with pytest.raises(pz.UnsuitableBufferError):
        buffer.__dlpack__(dl_device=(2, 0))


class Handed:
    """The memory that a buffer shares with these options."""

    def __init__(self, buffer, **options):
        self.buffer, self.options = buffer, options

    def __dlpack__(self, **options):
        return self.buffer.__dlpack__(**{**options, **self.options})

    def __dlpack_device__(self):
        return (1, 0)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("size", [0, 1, 4, 4099])
def test_copies(path, device, size):
    """A caller that asks for a copy gets separate memory, also on the host."""
    buffer = pz.load(path, device, (3, 3 + size))
    is_on_host = buffer.device == "cpu"
    copied = [{"dl_device": (1, 0), "copy": True}]
    if is_on_host:
        copied.append({"copy": True})
    else:
        copied.append({"dl_device": (1, 0)})
        with pytest.raises(pz.UnsuitableBufferError, match="another device"):
            buffer.__dlpack__(dl_device=(1, 0), copy=False)
    for options in copied:
        array = numpy.from_dlpack(Handed(buffer, **options))
        assert array.tobytes() == CONTENTS[3 : 3 + size]
        array[:] = 0
        assert buffer.tobytes() == CONTENTS[3 : 3 + size]


@pytest.mark.parametrize("device", DEVICES[2:])
def test_device_memory_is_not_the_hosts(path, device):
    buffer = pz.load(path, device, (0, 10))
    for hand_out in (buffer.__dlpack_device__, buffer.__dlpack__, lambda: memoryview(buffer)):
        with pytest.raises(pz.UnsuitableBufferError):
            hand_out()
    assert not hasattr(buffer, "__cuda_array_interface__")


def test_into_arrays(path):
    for dtype in ("u1", "i2", "f4", "f8"):
        array = numpy.empty((10, 20), dtype)
        assert pz.load(path, range=(7, 7 + array.nbytes), out=array) is array
        assert array.tobytes() == CONTENTS[7 : 7 + array.nbytes]
    memory = bytearray(10)
    pz.load(path, range=(0, 10), out=memory)
    assert memory == CONTENTS[:10]


class OnlyDlpack:
    """Looks like a torch tensor: memory without the buffer protocol."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **options):
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


class Old(OnlyDlpack):
    """A tensor of a package that does not know versions of DLPack."""

    def __dlpack__(self):
        return self.array.__dlpack__()


@pytest.mark.parametrize("kind", [OnlyDlpack, Old])
def test_tensors(path, kind):
    array = numpy.zeros((5, 8), "i4")
    tensor = kind(array)
    assert pz.load(path, range=(1, 161), out=tensor) is tensor
    assert array.tobytes() == CONTENTS[1:161]
    for level in (1, 6):
        assert pz.decompress(pz.compress(tensor, level)) == array.tobytes()
    with pytest.raises(pz.UnsuitableBufferError, match="contiguous"):
        pz.load(path, range=(0, 80), out=kind(array[:, ::2]))
    with pytest.raises(pz.UnsuitableBufferError, match="contiguous"):
        pz.compress(kind(array.T))
    # The stride of a dimension of one element does not matter.
    assert pz.decompress(pz.compress(kind(array[::5]))) == array[::5].tobytes()
    assert pz.compress(kind(array[:0])) == pz.compress(b"")


@pytest.mark.parametrize("error", [BufferError, RuntimeError])
def test_tensors_whose_package_refuses(path, error):
    """Raises an exception, as torch does for conjugated tensors and for tensors with gradients."""

    class Refusing(OnlyDlpack):
        def __dlpack__(self, **options):
            raise error("Can't export tensors with the conjugate bit set")

    tensor = Refusing(numpy.zeros(10, "u1"))
    for call in (lambda: pz.compress(tensor), lambda: pz.load(path, range=(0, 10), out=tensor)):
        with pytest.raises(pz.UnsuitableBufferError, match="conjugate bit") as caught:
            call()
        assert isinstance(caught.value.__cause__, error)


@pytest.mark.parametrize("dtype", ["M8[ns]", "bfloat16"])
def test_into_arrays_that_have_no_buffer(path, dtype):
    if dtype == "bfloat16":
        dtype = pytest.importorskip("ml_dtypes").bfloat16
    array = numpy.zeros((4, 5), dtype)
    assert pz.load(path, range=(1, 1 + array.nbytes), out=array) is array
    assert array.tobytes() == CONTENTS[1 : 1 + array.nbytes]
    with pytest.raises(pz.UnsuitableBufferError, match="contiguous"):
        pz.load(path, range=(0, array.nbytes // 2), out=array[:, ::2])
    array.flags.writeable = False
    with pytest.raises(pz.UnsuitableBufferError, match="read-only"):
        pz.load(path, range=(0, array.nbytes), out=array)


def test_read_only_memory_is_refused(path):
    array = numpy.zeros(10, "u1")
    array.flags.writeable = False
    for out in (bytes(10), array, OnlyDlpack(array)):
        with pytest.raises(pz.UnsuitableBufferError):
            pz.load(path, range=(0, 10), out=out)


class Cuda:
    """An array that says it is in CUDA's memory."""

    def __init__(self, **interface):
        self.__cuda_array_interface__ = interface


def test_arrays_of_cuda_need_cuda(path):
    if any(device.device.startswith("cuda") for device in pz.devices()):
        pytest.skip("there is a GPU of CUDA")
    base = {"data": (4096, False), "shape": (10,), "typestr": "|u1", "version": 3}
    for use in (lambda array: pz.load(path, range=(0, 10), out=array), pz.compress):
        with pytest.raises(pz.DeviceError):
            use(Cuda(**base))
        with pytest.raises(BufferError, match="contiguous"):
            use(Cuda(**base | {"shape": (5,), "strides": (2,)}))
        with pytest.raises(BufferError, match="lacks"):
            use(Cuda(shape=(10,)))
    with pytest.raises(BufferError, match="read-only"):
        pz.load(path, range=(0, 10), out=Cuda(**base | {"data": (4096, True)}))
    with pytest.raises(pz.DeviceError):
        pz.load(path, "cuda")


def test_misuse(path, tmp_path):
    with pytest.raises(pz.OptionError):
        pz.load(path, "tpu")
    with pytest.raises(TypeError):
        pz.load(path, out="text")
    with pytest.raises(TypeError):
        pz.load(path, level=3)
    with pytest.raises(pz.RangeError):
        pz.load(path, range=(0, len(CONTENTS) + 1))
    with pytest.raises(pz.RangeError):
        pz.load(path, range=(5, 4))
    with pytest.raises(OverflowError):
        pz.load(path, range=(-1, 4))
    with pytest.raises(ValueError, match="step"):
        pz.load(path, range=range(0, 10, 2))
    with pytest.raises(FileNotFoundError):
        pz.load(tmp_path / "nothing")
    with pytest.raises(pz.OutputLimitError):
        pz.load(path, max_output=100)
    with pz.open(path) as file:
        raw = file.raw
    with pytest.raises(ValueError, match="closed"):
        raw.read(1)
    with open(path, "rb") as file:
        closed = file
    with pytest.raises(ValueError):
        pz.load(closed)


@pytest.mark.parametrize("device", DEVICES)
def test_damage(path, device):
    data = bytearray(path.read_bytes())
    data[3000] ^= 1
    path.write_bytes(data)
    with pytest.raises(pz.CorruptError) as caught:
        pz.load(path, device)
    assert caught.value.block == 0
    assert pz.load(path, device, (200_000, 300_000)).tobytes() == CONTENTS[200_000:300_000]


@pytest.mark.parametrize("device", DEVICES)
def test_file_objects(path, device):
    with open(path, "rb") as file:
        assert pz.load(file, device).tobytes() == CONTENTS


@pytest.mark.parametrize("device", DEVICES)
def test_threads(path, device):
    failed = []

    def work(number):
        start = number * 50_000
        for _ in range(3):
            if pz.load(path, device, (start, start + 90_000)).tobytes() != CONTENTS[start : start + 90_000]:
                failed.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed


def in_child(path, buffer, device):
    if buffer is not None:
        with pytest.raises(pz.InUseError):
            buffer.tobytes()
    if device == "cpu":
        assert pz.load(path, device).tobytes() == CONTENTS


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
@pytest.mark.parametrize("device", DEVICES)
def test_fork(path, device):
    buffer = pz.load(path, device)
    child = multiprocessing.get_context("fork").Process(target=in_child, args=(path, buffer, device))
    child.start()
    child.join(60)
    assert child.exitcode == 0
    assert buffer.tobytes() == CONTENTS


class Ranges(http.server.SimpleHTTPRequestHandler):
    """Serves ranges of files, and counts the requests."""

    requests = 0

    def do_GET(self):
        Ranges.requests += 1
        with open(self.translate_path(self.path), "rb") as file:
            data = file.read()
        start, end = self.headers["Range"].removeprefix("bytes=").split("-")
        if start:
            first, last = int(start), min(int(end or len(data) - 1), len(data) - 1)
        else:
            first, last = max(0, len(data) - int(end)), len(data) - 1
        self.send_response(206)
        self.send_header("Content-Range", f"bytes {first}-{last}/{len(data)}")
        self.send_header("Content-Length", str(last - first + 1))
        self.end_headers()
        self.wfile.write(data[first : last + 1])

    def log_message(self, *_):
        pass


@pytest.fixture
def server(path):
    handler = functools.partial(Ranges, directory=path.parent)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        thread.join()


def test_uris(path, server):
    for uri in (path.as_uri(), server + urllib.parse.quote(path.name)):
        for device in DEVICES:
            assert pz.load(uri, device, (70_000, 200_000)).tobytes() == CONTENTS[70_000:200_000]
        with pz.open(uri) as file:
            file.seek(100_000)
            assert file.read(10) == CONTENTS[100_000:100_010]
            file.seek(0)
            assert file.read() == CONTENTS
        assert pz.list(uri)
    for uri in ("memio://nothing", path.as_uri() + "x"):
        with pytest.raises(FileNotFoundError):
            pz.load(uri)
    with pytest.raises(pz.OptionError):
        pz.load("s3://")


def test_block_headers_share_requests(path, server):
    path.with_name("stored.pz").write_bytes(pz.compress(os.urandom(100 << 16), 1, block_size=1 << 16))
    before = Ranges.requests
    (frame,) = pz.list(server + "stored.pz", blocks=True)
    assert len(frame.blocks) == 100
    assert Ranges.requests - before < 20


@pytest.mark.parametrize("device", DEVICES)
def test_compressed_where_it_is(path, device):
    buffer = pz.load(path, device)
    for level, options in [(1, {"block_size": 1 << 16}), (3, {"block_size": 1 << 17, "filter": "rotate2"}), (9, {}), (2, {})]:
        expected = pz.compress(CONTENTS, level, **options)
        assert pz.compress(buffer, level, **options) == expected
        memory = bytearray(len(expected) + 5)
        assert pz.compress_into(buffer, memory, level, **options) == len(expected)
        assert memory[: len(expected)] == expected
        with pytest.raises(pz.BufferTooSmallError) as caught:
            pz.compress_into(buffer, bytearray(100), level, **options)
        assert caught.value.needed == len(expected)
    assert pz.decompress(pz.compress(pz.DeviceBuffer(0, device))) == b""
