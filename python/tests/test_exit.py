"""The end of a process that has used devices."""

import os
import subprocess
import sys

import pytest

import libpz as pz

CODE = """
import atexit, os, pathlib, sys, time

def threads():
    return [task for task in pathlib.Path("/proc/self/task").iterdir() if (task / "comm").read_text() == "pz device\\n"]

def look():
    for _ in range(100):
        if not threads():
            return
        time.sleep(0.01)  # for one that has left the driver, and only has to end
    print(threads())

atexit.register(look)  # runs after what libpz registers
import libpz as pz

data = os.urandom(1 << 20)
# The CPU is done before the device has compiled its kernels.
assert pz.decompress(pz.compress(data, block_size=1 << 16, device=sys.argv[1])) == data
"""


@pytest.mark.skipif(not os.path.isdir("/proc/self/task"), reason="the system does not list threads")
@pytest.mark.parametrize("device", ["opencl", "webgpu"])
def test_no_thread_calls_a_driver_when_the_process_ends(device, tmp_path):
    """If the process ends during a driver's call, the driver crashes: the result is right, but a signal ends the
    process."""
    if not any(found.device.startswith(device) for found in pz.devices()):
        pytest.skip(f"there is no device of {device}")
    # No kernel is in the cache.
    fresh = dict.fromkeys(("POCL_CACHE_DIR", "MESA_SHADER_CACHE_DIR", "XDG_CACHE_HOME"), str(tmp_path))
    command = [sys.executable, "-c", CODE, device]
    ended = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **fresh})
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")
