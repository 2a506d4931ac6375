"""Single calls on buffers, contexts, options, and refusals."""

import array
import concurrent.futures
import ctypes
import gc
import importlib.metadata
import os
import sys
import threading

import pytest

import libpz as pz

TEXT = b"what is said three times is true " * 3000
NOISE = os.urandom(200_000)


@pytest.mark.parametrize("level", range(1, 10))
def test_every_level(level):
    for data in (b"", b"x", TEXT, NOISE):
        assert pz.decompress(pz.compress(data, level)) == data


@pytest.mark.parametrize(
    "options",
    [
        {"pipeline": "fse"},
        {"pipeline": "bwt", "block_size": 1 << 16},
        {"window": 1 << 16},
        {"long": 1 << 20, "block_size": 1 << 16},
        {"rsyncable": True},
        {"filter": "i16"},
        {"filter": "delta8,zigzag8,transpose8"},
        {"filter": "auto"},
        {"threads": 1, "memory": 64 << 20},
        {"device": "auto", "device_memory": 1 << 20, "verify": False},
        dict.fromkeys(["pipeline", "block_size", "window", "long", "filter", "memory", "device_memory"]),
    ],
)
def test_options(options):
    data = TEXT * 5
    assert pz.decompress(pz.compress(data, 2, **options)) == data
    assert pz.decompress(pz.Compressor(2, **options).compress(data)) == data


def test_result_does_not_depend_on_threads_or_contexts():
    data = (TEXT + NOISE) * 8
    expected = pz.compress(data, block_size=1 << 16)
    compressor = pz.Compressor(block_size=1 << 16)
    assert compressor.compress(data) == compressor.compress(data) == expected
    assert pz.compress(data, block_size=1 << 16, threads=1) == expected
    assert pz.compress(data, block_size=1 << 16, device="auto") == expected


@pytest.mark.parametrize(
    "make",
    [
        bytes,
        bytearray,
        memoryview,
        lambda data: array.array("B", data),
        lambda data: (ctypes.c_char * len(data)).from_buffer_copy(data),
    ],
)
def test_any_contiguous_buffer(make):
    compressed = pz.compress(make(TEXT))
    assert pz.decompress(make(compressed)) == TEXT
    assert pz.content_size(make(compressed)) == len(TEXT)


def test_elements_of_any_type():
    numbers = array.array("d", range(5000))
    compressed = pz.compress(numbers, filter="f64")
    restored = array.array("d", bytes(8 * 5000))
    assert pz.decompress_into(compressed, restored) == 8 * 5000
    assert restored == numbers
    numpy = pytest.importorskip("numpy")
    grid = numpy.arange(6000, dtype="i4").reshape(20, 300)
    assert pz.decompress(pz.compress(grid)) == grid.tobytes()
    assert pz.decompress(pz.compress(numpy.array(1.5, "f4"))) == numpy.float32(1.5).tobytes()


@pytest.mark.parametrize(
    "dtype",
    ["M8[ns]", "m8[s]", "bfloat16", "float8_e4m3fn", "int4", "U3", "S3", "V5", [("day", "M8[D]"), ("O", "i4")]],
    ids=str,
)
def test_arrays_of_any_type(dtype):
    """NumPy lends most types' bytes as buffers, but not those of dates and of other packages' types."""
    numpy = pytest.importorskip("numpy")
    if isinstance(dtype, str) and dtype.startswith(("bf", "fl", "int")):
        dtype = getattr(pytest.importorskip("ml_dtypes"), dtype)
    for shape in ((), (0, 3), (700, 3)):
        array = numpy.zeros(shape, dtype)
        compressed = pz.compress(array)
        assert pz.decompress(compressed) == array.tobytes()
        restored = numpy.ones_like(array)
        assert pz.decompress_into(compressed, restored) == array.nbytes
        assert restored.tobytes() == array.tobytes()
    with pytest.raises(pz.UnsuitableBufferError, match="not C-contiguous"):
        pz.compress(numpy.zeros((4, 6), dtype)[:, ::2])


def test_arrays_of_references_are_refused():
    """Their bytes are addresses, which must not be saved and restored."""
    numpy = pytest.importorskip("numpy")
    arrays = [
        numpy.array([1, None, "text"], object),
        numpy.zeros(3, [("a", object), ("b", "i4")]),
        numpy.array(["text", "of any length " * 9], numpy.dtypes.StringDType()),
        memoryview(numpy.array([None], object)),
        (ctypes.py_object * 3)(1, 2, 3),
    ]
    for array in arrays:
        with pytest.raises(pz.UnsuitableBufferError, match="Python objects|references"):
            pz.compress(array)
        with pytest.raises(pz.UnsuitableBufferError, match="Python objects|references"):
            pz.decompress_into(pz.compress(bytes(8)), array)


@pytest.mark.parametrize("into", [pz.compress_into, lambda data, buffer: pz.Compressor().compress_into(data, buffer)])
def test_compress_into(into):
    buffer = bytearray(len(TEXT))
    count = into(TEXT, buffer)
    assert pz.decompress(memoryview(buffer)[:count]) == TEXT
    assert into(TEXT, bytearray(count)) == count
    for room in (0, 10, count - 1):
        with pytest.raises(pz.BufferTooSmallError) as caught:
            into(TEXT, bytearray(room))
        assert (caught.value.needed, caught.value.len) == (count, room)


@pytest.mark.parametrize(
    "into", [pz.decompress_into, lambda data, buffer: pz.Decompressor().decompress_into(data, buffer)]
)
def test_decompress_into(into):
    compressed = pz.compress(TEXT)
    buffer = bytearray(len(TEXT) + 5)
    assert into(compressed, buffer) == len(TEXT)
    assert buffer == TEXT + bytes(5)
    with pytest.raises(pz.BufferTooSmallError) as caught:
        into(compressed, bytearray(len(TEXT) - 1))
    assert (caught.value.needed, caught.value.len) == (len(TEXT), len(TEXT) - 1)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: pz.compress("text"), TypeError, "bytes-like"),
        (lambda: pz.compress(memoryview(TEXT)[::2]), pz.UnsuitableBufferError, "not C-contiguous"),
        (lambda: pz.compress_into(TEXT, bytes(100)), pz.UnsuitableBufferError, "read-only"),
        (
            lambda: pz.decompress_into(pz.compress(TEXT), memoryview(bytearray(2 * len(TEXT)))[::2]),
            pz.UnsuitableBufferError,
            "not C-cont",
        ),
        (lambda: pz.compress(TEXT, 0), pz.OptionError, "level 0 is not between 1 and 9"),
        (lambda: pz.compress(TEXT, -1), pz.OptionError, "level -1 is not"),
        (lambda: pz.compress(TEXT, "3"), TypeError, "int"),
        (lambda: pz.compress(TEXT, pipeline="zip"), pz.OptionError, 'no pipeline "zip"'),
        (lambda: pz.compress(TEXT, filter="f31"), pz.OptionError, 'no filter "f31"'),
        (lambda: pz.compress(TEXT, block_size=1000), pz.OptionError, "block size 1000"),
        (lambda: pz.compress(TEXT, window=1000), pz.OptionError, "window 1000"),
        (lambda: pz.compress(TEXT, threads=-1), pz.OptionError, "threads -1 is out of range"),
        (lambda: pz.compress(TEXT, memory=1 << 70), pz.OptionError, "memory 1180591620717411303424 is out of range"),
        (lambda: pz.compress(TEXT, memory=1000), pz.MemoryLimitError, "more than the limit of 1000 bytes"),
        (lambda: pz.compress(TEXT, speed=3), TypeError, "unexpected keyword argument 'speed'"),
        (lambda: pz.compress(TEXT, device="tpu"), pz.OptionError, 'no device "tpu"'),
        (lambda: pz.compress(TEXT, device="opencl:x"), pz.OptionError, 'no device "opencl:x"'),
        (lambda: pz.compress(TEXT, device="webgpu:99"), pz.DeviceError, "device webgpu:99: "),
        (lambda: pz.Compressor(pipeline="zip"), pz.OptionError, 'no pipeline "zip"'),
        (lambda: pz.Decompressor(level=3), TypeError, "unexpected keyword argument 'level'"),
        (lambda: pz.decompress(b""), pz.TruncatedError, "truncated"),
        (lambda: pz.decompress(b"not compressed at all"), pz.NotPzError, "not in pz format"),
        (lambda: pz.decompress(pz.compress(TEXT)[:-1]), pz.TruncatedError, "truncated"),
        (lambda: pz.decompress(pz.compress(TEXT), max_output=99), pz.OutputLimitError, "limit of 99 bytes"),
        (lambda: pz.decompress(pz.compress(TEXT), max_memory=99), pz.MemoryLimitError, "limit of 99 bytes"),
    ],
)
def test_refused(call, error, message):
    with pytest.raises(error, match=message):
        call()


def test_one_buffer_for_both_sides():
    buffer = bytearray(TEXT * 2)
    both = memoryview(buffer)
    with pytest.raises(pz.UnsuitableBufferError, match="overlap"):
        pz.compress_into(buffer, buffer)
    count = pz.compress_into(both[: len(TEXT)], both[len(TEXT) :])
    compressed = both[len(TEXT) : len(TEXT) + count]
    with pytest.raises(pz.UnsuitableBufferError, match="overlap"):
        pz.decompress_into(compressed, buffer)
    assert pz.decompress_into(compressed, both[: len(TEXT)]) == len(TEXT)
    assert both[: len(TEXT)] == TEXT


def test_version():
    assert pz.__version__ == importlib.metadata.version("libpz")


def test_errors_are_what_users_expect():
    assert issubclass(pz.CorruptError, (pz.InputError,)) and issubclass(pz.InputError, (ValueError,))
    assert issubclass(pz.TruncatedError, EOFError)
    assert issubclass(pz.OutOfMemoryError, MemoryError)
    assert issubclass(pz.DeviceError, OSError)
    assert issubclass(pz.UnsuitableBufferError, BufferError) and issubclass(pz.UnsuitableBufferError, ValueError)
    damaged = bytearray(pz.compress(NOISE, block_size=1 << 16))
    damaged[100_000] ^= 1
    with pytest.raises(pz.CorruptError, match="frame 0, block 1") as caught:
        pz.decompress(damaged)
    assert (caught.value.frame, caught.value.block) == (0, 1)
    assert caught.value.offset > 65_536


def test_every_byte_damaged():
    small = pz.compress(b"some contents " * 20)
    for at in range(len(small)):
        damaged = bytearray(small)
        damaged[at] ^= 0x55
        with pytest.raises(pz.Error):
            pz.decompress(damaged)


def test_a_buffer_stays_while_it_is_used():
    """While a thread compresses a buffer, no other thread can resize it."""
    data, compressed = bytearray(NOISE * 40), []
    thread = threading.Thread(target=lambda: compressed.append(pz.compress(data, 6, threads=1)))
    thread.start()
    refused = 0
    while thread.is_alive():
        try:
            data.append(0)
            data.pop()
        except BufferError:
            refused += 1
    thread.join()
    assert refused > 0
    assert pz.decompress(compressed[0])[: len(NOISE)] == NOISE


def test_an_owner_that_is_collected():
    class Owner:
        def __init__(self):
            self.data = bytearray(TEXT)

    view = memoryview(Owner().data)
    gc.collect()
    compressed = pz.compress(view)
    del view
    gc.collect()
    assert pz.decompress(compressed) == TEXT


def test_threads_share_contexts_and_run_without_the_lock():
    compressor, decompressor = pz.Compressor(block_size=1 << 16), pz.Decompressor()
    inputs = [bytes([i]) * 1000 + NOISE[: 1000 * i] + TEXT for i in range(16)]
    failed = []

    def work(data):
        for _ in range(5):
            if decompressor.decompress(compressor.compress(data)) != data:
                failed.append(data)

    threads = [threading.Thread(target=work, args=(data,)) for data in inputs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed


def test_other_threads_run_meanwhile():
    done = threading.Event()
    counted = 0

    def work():
        pz.compress(NOISE * 50, 7, threads=1)
        done.set()

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1000)  # a thread that holds the lock would keep it to the end
    try:
        thread = threading.Thread(target=work)
        thread.start()
        while not done.is_set():
            counted += 1
            done.wait(0.001)
        thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert counted > 10


def test_short_calls_with_many_options():
    """Their compressors wait for the next call with the same options."""
    ways = [dict(level=level, filter=chain) for level in range(1, 10) for chain in (None, "i16")]
    data = NOISE[:200] + TEXT[:1800]
    expected = [pz.Compressor(**way).compress(data) for way in ways]
    assert len(set(expected)) > 9
    with pytest.raises(pz.OptionError):
        pz.compress(data, block_size=3)
    for number in [*range(len(ways)), *range(len(ways)), *range(len(ways) - 1, -1, -1), 3, 3, 4, 3]:
        room = bytearray(len(data) + 1000)
        assert pz.compress(data, **ways[number]) == expected[number]
        assert room[: pz.compress_into(data, room, **ways[number])] == expected[number]

    def work(number):
        return all(pz.compress(data, **ways[(number + i) % 18]) == expected[(number + i) % 18] for i in range(50))

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        assert all(pool.map(work, range(18)))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_fork():
    data = (TEXT + NOISE) * 4
    compressor, decompressor = pz.Compressor(block_size=1 << 16), pz.Decompressor()
    expected = compressor.compress(data)  # starts threads
    assert decompressor.decompress(expected) == data
    short = pz.compress(data[:100])  # leaves a compressor for the next such call
    child = os.fork()
    if child == 0:
        try:
            right = pz.compress(data[:100]) == short
            right = right and compressor.compress(data) == expected
            right = right and decompressor.decompress(expected) == data
            right = right and pz.decompress(pz.compress(data, device="auto")) == data
            del compressor, decompressor
            gc.collect()
            os._exit(0 if right else 1)
        finally:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert compressor.compress(data) == expected


def test_devices_and_cost():
    for device in pz.devices():
        assert device.device.partition(":")[0] in ("cuda", "opencl", "webgpu")
        data = (TEXT + NOISE) * 30
        assert pz.decompress(pz.compress(data, device=device.device), device=device.device) == data
    prediction = pz.cost(1 << 30, 3, sample=NOISE * 20)
    assert prediction.seconds == prediction.cpu_seconds > 0
    assert pz.cost(1 << 30, decompress=True).cpu_memory > 0
    with pytest.raises(pz.OptionError, match="must be named"):
        pz.cost(1000, device="auto")
