#!/usr/bin/env bash
# PyO3 0.30.1 (crates.io) takes no buffer of a ctypes array: `PyUntypedBuffer::get` fails with "strides is null". PEP
# 3118 says that a null `strides` means a C-contiguous array. ctypes exports its arrays that way even if strides are
# requested, and memoryview, bytes and NumPy accept them. So an extension must go through memoryview to accept what
# `bytes()` accepts. Output seen, with PyO3 0.30.1, CPython 3.11.7 and Rust 1.95:
#   array.array:  memoryview 12 bytes, PyO3 12 bytes
#   ctypes array: memoryview 12 bytes, PyO3 BufferError: strides is null
#   memoryview of it: memoryview 12 bytes, PyO3 12 bytes
# Needs cargo and Python. Fails if PyO3 behaves otherwise.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
mkdir "$dir/src"
cat >"$dir/Cargo.toml" <<'TOML'
[package]
name = "taker"
version = "0.0.0"
edition = "2021"

[lib]
crate-type = ["cdylib"]

[dependencies]
pyo3 = { version = "=0.30.1", features = ["extension-module", "abi3-py311"] }

[workspace]
TOML
cat >"$dir/src/lib.rs" <<'RUST'
use pyo3::buffer::PyUntypedBuffer;
use pyo3::prelude::*;

#[pyfunction]
fn length(object: &Bound<'_, PyAny>) -> PyResult<usize> {
    Ok(PyUntypedBuffer::get(object)?.len_bytes())
}

#[pymodule]
fn taker(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(length, module)?)
}
RUST
cargo build --quiet --manifest-path "$dir/Cargo.toml" --target-dir "$dir/target"
cp "$dir/target/debug/libtaker.so" "$dir/taker.so"
cat >"$dir/take.py" <<'PYTHON'
import array, ctypes, sys

sys.path.insert(0, sys.argv[1])
import taker

words = (ctypes.c_int32 * 3)(1, 2, 3)
results = []
for name, data in ("array.array", array.array("i", [1, 2, 3])), ("ctypes array", words), ("memoryview of it", memoryview(words)):
    try:
        result = f"{taker.length(data)} bytes"
    except BufferError as error:
        result = f"BufferError: {error}"
    print(f"{name}: memoryview {memoryview(data).nbytes} bytes, PyO3 {result}")
    results.append(result)
sys.exit(results != ["12 bytes", "BufferError: strides is null", "12 bytes"])
PYTHON
python3 "$dir/take.py" "$dir"
