#!/usr/bin/env bash
# Compares pz, on the CPU and with --device on GPUs, with zstd, lz4, xz, bzip2, bzip3 and bsc on this machine.
# Usage: scripts/bench.sh [OPTIONS] FILE...
# `scripts/bench.sh --help` lists the options. Results go to target/bench: Markdown, CSV, and a plot for each file.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

# The build runs in the repository, but paths on the command line are relative to the caller's folder.
caller=$PWD
cd "$(dirname "${BASH_SOURCE[0]}")/.."
target=${CARGO_TARGET_DIR:-$PWD/target}

say "Building pz and the comparison, optimised"
need_compiler
cargo build --release --quiet --locked --package pz-cli
cargo build --release --quiet --locked --package pz-scripts --bin compare

missing=()
for program in zstd lz4 xz bzip2 bzip3; do
    command -v "$program" >/dev/null || missing+=("${program/#xz/xz-utils}")
done
if [ "${#missing[@]}" -gt 0 ]; then
    install_packages "${missing[@]}" || say "Could not install ${missing[*]}; they are left out"
fi

cd "$caller"
exec "$target/release/compare" --pz "$target/release/pz" --out "$target/bench" "$@"
