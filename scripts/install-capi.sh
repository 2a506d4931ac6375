#!/usr/bin/env bash
# Builds pz as a library for C, and installs its header, a static and a shared library, and a pkg-config file.
# Usage: scripts/install-capi.sh PREFIX [ARGUMENT OF CARGO...], for example scripts/install-capi.sh ~/.local
set -euo pipefail
prefix=${1:?Usage: scripts/install-capi.sh PREFIX [ARGUMENT OF CARGO...]}
shift
mkdir -p "$prefix"
prefix=$(cd "$prefix" && pwd)
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/common.sh
need_compiler

# Cargo prints where the libraries are; rustc prints which system libraries a static library needs.
arguments=("$@")
[ "${#arguments[@]}" -gt 0 ] || arguments=(--release)
log=$(mktemp)
trap 'rm -f "$log"' EXIT
# The compiler prints these libraries only when it runs. A name that is new each time makes it run.
cargo rustc --locked --quiet --package pz-capi --lib --message-format json-render-diagnostics "${arguments[@]}" -- \
    --print native-static-libs=/dev/stdout --cfg "build_${EPOCHREALTIME//[^0-9]/}" >"$log"
file() {
    grep -o '"[^"]*/libpz_c\.'"$1"'"' "$log" | tail -1 | tr -d '"'
}
static=$(file a)
shared=$(file so)
[ -n "$static" ] && [ -n "$shared" ] || die "Cargo has not said where the libraries are"
private=$(grep -v '^{' "$log" | tail -1) || die "The compiler has not said what the static library needs"
version=$(sed -n 's/^version = "\(.*\)"/\1/p' capi/Cargo.toml)

install -d "$prefix/include" "$prefix/lib/pkgconfig"
install -m 644 capi/pz.h "$prefix/include/pz.h"
install -m 644 "$static" "$prefix/lib/libpz.a"
install -m 755 "$shared" "$prefix/lib/libpz.so.$version"
ln -sf "libpz.so.$version" "$prefix/lib/libpz.so.0"
ln -sf libpz.so.0 "$prefix/lib/libpz.so"
sed -e "s|@PREFIX@|$prefix|; s|@VERSION@|$version|; s|@PRIVATE@|$private|" capi/pz.pc.in >"$prefix/lib/pkgconfig/pz.pc"
say "Installed in $prefix"
