#!/usr/bin/env bash
# Builds pz, then compresses a real file, restores it and compares. Usage: scripts/try.sh [FILE]
# Without FILE it takes the largest library of the Rust compiler. Writes nothing outside target/ and a temporary folder.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
caller=$PWD
cd "$(dirname "${BASH_SOURCE[0]}")/.."

need_compiler
cargo build --release --locked --package pz-cli
pz=${CARGO_TARGET_DIR:-$PWD/target}/release/pz

if [ $# -gt 0 ]; then
    cd "$caller"
    file=$1
else
    file=$(find "$(rustc --print sysroot)/lib" -type f -printf '%s %p\n' | sort -n | tail -n 1 | cut -d ' ' -f 2-)
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for level in 1 3 6 9; do
    say "Level $level"
    "$pz" compress -v "-$level" -o "$work/small.pz" --force "$file"
    "$pz" decompress -v -o "$work/restored" --force "$work/small.pz"
    cmp "$file" "$work/restored" || die "What was restored is not $file"
done
say "Restored exactly at every level: $file. The program is $pz"
