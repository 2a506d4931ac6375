#!/usr/bin/env bash
# Sets up and runs all tests of pz, on a machine with Rust. Usage: scripts/test.sh
# Tests kernels on software devices, and installs those if they are missing (on Debian and its derivatives).
# A test that cannot run here fails, with two exceptions, which the script reports: tests that need a mount where
# mounting is forbidden, and tests on CUDA devices, since CUDA has no software device. Kernels are still compiled for
# CUDA. If every test passed, the script ends with "All tests passed" and exit code 0.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/common.sh

export CARGO_TERM_COLOR=never
export CARGO_INCREMENTAL=0
# With these settings, the library's tests build in less than half of the processor time, and run as fast. Panics still
# name file and line.
export CARGO_PROFILE_DEV_DEBUG=0 CARGO_PROFILE_DEV_LTO=off
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
# Drivers cache the kernels that they compile in the user's cache, as for every program, so that the next run finds
# them.
user_cache=${XDG_CACHE_HOME:-${HOME:+$HOME/.cache}}
mkdir -p "$user_cache" 2>/dev/null && [ -w "$user_cache" ] || user_cache=$target/tmp
export POCL_CACHE_DIR=${POCL_CACHE_DIR:-$user_cache/pocl/kcache}
export MESA_SHADER_CACHE_DIR=${MESA_SHADER_CACHE_DIR:-$user_cache}
# All tests share a separate cache for the measurements of pz.
export XDG_CACHE_HOME=$target/tmp
mkdir -p "$XDG_CACHE_HOME"

step() {
    say "$* (${SECONDS} s)"
}

step "Set-up"
need_compiler
cargo fmt --version >/dev/null 2>&1 && cargo clippy --version >/dev/null 2>&1 ||
    rustup component add rustfmt clippy ||
    die "rustfmt or clippy is missing, and rustup cannot install them"

need_software_devices
need_nvrtc "$target/nvrtc"
compgen -G '/dev/nvidia[0-9]*' >/dev/null || say "NOT TESTED: running kernels through CUDA, because this machine has no NVIDIA GPU"
rustup target list --installed 2>/dev/null | grep -qx wasm32-unknown-unknown ||
    rustup target add wasm32-unknown-unknown || true
command -v node >/dev/null || install_packages nodejs || true
if ! rustup target list --installed 2>/dev/null | grep -qx wasm32-unknown-unknown || ! command -v node >/dev/null; then
    export PZ_TEST_NO_WASM=1
    say "NOT TESTED: the library as WebAssembly, because its target for Rust or node is missing and cannot be installed"
fi
export PZ_TEST_NO_SKIP=1
# Turn off Mesa's device-selection layer, which complains on a machine without a desktop.
export NODEVICE_SELECT=1
if ! unshare -rm mount -t tmpfs none /mnt 2>/dev/null; then
    export PZ_TEST_NO_MOUNT=1
    say "NOT TESTED: a full file system, because this machine does not allow mounts"
fi

step "Format"
cargo fmt --all --check
# `cargo fmt` does not wrap comments, strings and documents. `C.UTF-8` counts characters instead of bytes.
! LC_ALL=C.UTF-8 grep -rnE '^.{121}' --include='*.rs' --include='*.md' --exclude-dir=target --exclude-dir='.?*' . ||
    die "These lines have more than 120 columns"

# Checks that need no device, in a separate target folder.
checks() {
    renice -n 19 "$BASHPID" >/dev/null
    export CARGO_TARGET_DIR=$target/checks

    step "Lints"
    cargo clippy --locked --workspace --all-targets --all-features -- -D warnings

    step "Documentation"
    RUSTDOCFLAGS="-D warnings" cargo doc --locked --no-deps --all-features --quiet

    step "Every combination of features"
    for features in "" cuda opencl webgpu; do
        cargo clippy --locked --quiet --all-targets --no-default-features --features "$features" -- -D warnings
    done
    # These checks do not depend on the tests.
    for features in fast-sort simd "simd fast-sort" remote modules output tables "cuda opencl" "cuda webgpu" "opencl webgpu"; do
        cargo clippy --locked --quiet --lib --no-default-features --features "$features" -- -D warnings
    done
    for features in "" cuda "opencl remote" webgpu; do
        cargo clippy --locked --quiet --package pz-cli --bins --no-default-features --features "$features" -- -D warnings
    done

    step "Tests of codecs and format, portable code alone; of the program what depends on devices"
    cargo test --locked --no-default-features --features modules --lib --test container_golden --test container_reference \
        --test container_single
    cargo test --locked --package pz-cli --no-default-features --test cli -- cost:: devices:: refusals::
    cp "$CARGO_TARGET_DIR/debug/pz" "$scratch/pz"

    step "End of what ran beside the tests"
}

scratch=$(mktemp -d)
step "Beside the tests, where they leave a core idle: lints, documentation, combinations of features, portable code"
# Job control gives these checks a separate process group, so that the script can end all of them. Their output is shown
# at the end.
set -m
checks >"$scratch/log" 2>&1 &
beside=$!
set +m
trap 'kill -- "-$beside" 2>/dev/null || true; rm -rf "$scratch"' EXIT

step "Tests, all features; fuzz targets, on mutations of valid files"
cargo test --locked --workspace --all-features

step "The Python package, as pip installs it"
need_python_environment "$target/python"
# Python and C need most crates with other features than above, so these are built again. The three crates that take
# longest hardly run there.
quick=(--profile dev)
for crate in cranelift-codegen naga wgpu-core; do
    quick+=(--config "profile.dev.package.$crate.opt-level=0")
done
MATURIN_PEP517_ARGS="--locked ${quick[*]}" "$target/python/bin/pip" install --quiet "./python[test]"
"$target/python/bin/python" -m mypy --config-file python/pyproject.toml --cache-dir "$target/mypy" python/libpz
"$target/python/bin/python" -m mypy.stubtest --concise --mypy-config-file python/pyproject.toml \
    --allowlist python/stubtest.allow --ignore-unused-allowlist libpz._libpz
# Run outside the source folder, which Python would take for the package.
(cd python/tests && "$target/python/bin/python" -m pytest --quiet -p no:cacheprovider -rs)
"$target/python/bin/python" -c 'import torch' 2>/dev/null || say "NOT TESTED: tensors of torch in Python, because torch is not installed in $target/python"

step "The library for C, as its script installs it: the example, with the shared library and with the static one"
command -v pkg-config >/dev/null || install_packages pkg-config || die "pkg-config is missing, and cannot be installed here"
# The example does little, so optimising it would take longer than running it.
CARGO_PROFILE_DEV_OPT_LEVEL=0 scripts/install-capi.sh "$target/capi" "${quick[@]}"
c_flags=$(PKG_CONFIG_PATH=$target/capi/lib/pkgconfig pkg-config --cflags --libs --static pz)
# Each of the flags is a word of its own.
# shellcheck disable=SC2086
cc -std=c11 -Wall -Wextra -Werror capi/example/example.c $c_flags -Wl,-rpath,"$target/capi/lib" -o "$target/capi/shared"
# shellcheck disable=SC2086
cc -std=c11 -Wall -Wextra -Werror capi/example/example.c ${c_flags/-lpz/-l:libpz.a} -o "$target/capi/static"
for linked in shared static; do
    "$target/capi/$linked" "$scratch" >/dev/null
done

step "The README and the guide, as they stand"
cargo test --locked --workspace --all-features --test docs -- --ignored

step "Waiting for what runs beside the tests"
ended=0
wait "$beside" || ended=$?
cat "$scratch/log"
[ "$ended" -eq 0 ] || die "what ran beside the tests failed, with exit code $ended"

step "A mixed set of files at every level, with and without vector code, on one thread and two"
# Without `--tests`, dependencies would have other features than above, and would be built again.
cargo build --locked --quiet --workspace --all-features --bins --tests
"$target/debug/mixed_set" "$scratch/files"
scripts/same-bytes.sh "$target/debug/pz" "$scratch/pz" "$scratch/files"

step "All tests passed"
