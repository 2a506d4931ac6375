# Sourced by the scripts beside it.

# One line that stands out from what programs print.
say() {
    printf '== %s\n' "$*" >&2
}

die() {
    say "$*"
    exit 1
}

# Installs Debian packages; fails where that cannot be done.
install_packages() {
    local root=()
    if [ "$(id -u)" -ne 0 ]; then
        sudo -n true 2>/dev/null || return 1
        root=(sudo -n)
    fi
    command -v apt-get >/dev/null || return 1
    say "Installing $*"
    local install=("${root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -qq --yes --no-install-recommends "$@")
    # The lists of packages of a fresh machine are empty or old.
    "${install[@]}" >/dev/null 2>&1 ||
        { "${root[@]}" apt-get update -qq >/dev/null && "${install[@]}" >/dev/null; }
}

# A linker and a C compiler: Rust needs the one, the suffix sorter the other.
need_compiler() {
    command -v cargo >/dev/null || die "Rust is missing: install it as https://rustup.rs says"
    command -v cc >/dev/null || install_packages gcc libc6-dev ||
        die "A C compiler is missing, and this user cannot install one: apt-get install gcc libc6-dev"
}
