# Sourced by the scripts beside it.

# Prints a line that stands out from the output of programs.
say() {
    printf '== %s\n' "$*" >&2
}

die() {
    say "$*"
    exit 1
}

# Installs Debian packages; fails if this user or system cannot.
install_packages() {
    local root=()
    if [ "$(id -u)" -ne 0 ]; then
        sudo -n true 2>/dev/null || return 1
        root=(sudo -n)
    fi
    command -v apt-get >/dev/null || return 1
    say "Installing $*"
    local install=("${root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -qq --yes --no-install-recommends "$@")
    # The package lists of a fresh machine are empty or old, so update them if the first try fails.
    "${install[@]}" >/dev/null 2>&1 ||
        { "${root[@]}" apt-get update -qq >/dev/null && "${install[@]}" >/dev/null; }
}

# Rust needs a linker, and the suffix sorter a C compiler.
need_compiler() {
    command -v cargo >/dev/null || die "Rust is missing: install it as https://rustup.rs says"
    command -v cc >/dev/null || install_packages gcc libc6-dev ||
        die "A C compiler is missing, and this user cannot install one: apt-get install gcc libc6-dev"
}

has_library() {
    PATH=$PATH:/sbin:/usr/sbin ldconfig -p 2>/dev/null | grep -F "$1" >/dev/null
}

# Installs software devices for OpenCL and Vulkan, so that kernels are tested on every machine.
need_software_devices() {
    local missing=()
    compgen -G '/etc/OpenCL/vendors/*.icd' >/dev/null || missing+=(pocl-opencl-icd)
    has_library libOpenCL.so.1 || missing+=(ocl-icd-libopencl1)
    compgen -G '/usr/share/vulkan/icd.d/lvp_icd*.json' >/dev/null || missing+=(mesa-vulkan-drivers)
    has_library libvulkan.so.1 || missing+=(libvulkan1)
    [ "${#missing[@]}" -eq 0 ] || install_packages "${missing[@]}" ||
        die "Software devices for OpenCL (PoCL) or Vulkan (lavapipe) are missing, and cannot be installed here;" \
            "on Debian: apt-get install ${missing[*]}"
    # PoCL 5 and 6 can compile the kernels only with this method; pz refuses them without it.
    case $(dpkg-query --show --showformat '${Version}' pocl-opencl-icd 2>/dev/null || true) in
        [56].*) export POCL_WORK_GROUP_METHOD=${POCL_WORK_GROUP_METHOD:-cbs} ;;
    esac
}

# NVRTC compiles kernels for CUDA on every machine. Sets PZ_NVRTC to one version, and PZ_TEST_NVRTC to an older and a
# newer one. Unless the variables are set, fetches the versions from PyPI to the given folder.
need_nvrtc() {
    local twelve=nvidia/cuda_nvrtc/lib/libnvrtc.so.12 thirteen=nvidia/cu13/lib/libnvrtc.so.13
    if [ -z "${PZ_NVRTC:-}" ]; then
        export PZ_NVRTC=$1/$twelve
        fetch_nvrtc "$PZ_NVRTC" "$1" nvidia-cuda-nvrtc-cu12==12.9.86
    fi
    if [ -z "${PZ_TEST_NVRTC:-}" ]; then
        export PZ_TEST_NVRTC=$1/old/$twelve:$1/new/$thirteen
        fetch_nvrtc "$1/old/$twelve" "$1/old" nvidia-cuda-nvrtc-cu12==12.4.127
        fetch_nvrtc "$1/new/$thirteen" "$1/new" nvidia-cuda-nvrtc==13.0.88
    fi
}

# Fetches a library of NVRTC from the given package to a folder, unless it is there.
fetch_nvrtc() {
    [ ! -e "$1" ] || return 0
    python3 -m pip --version >/dev/null 2>&1 || install_packages python3-pip ||
        die "pip is missing, and cannot be installed here: on Debian, apt-get install python3-pip"
    say "Fetching NVRTC: $3"
    python3 -m pip install --quiet --no-deps --upgrade --target "$2" "$3" && [ -e "$1" ] ||
        die "NVRTC is missing, and pip cannot fetch it: set PZ_NVRTC to the path of libnvrtc.so, and PZ_TEST_NVRTC to those" \
            "of versions 12.4 and 13, with a colon between"
}

# Makes a virtual environment for Python 3.11 or later in the given folder.
need_python_environment() {
    [ ! -x "$1/bin/pip" ] || return 0
    command -v python3 >/dev/null && python3 -c 'import ensurepip, venv' 2>/dev/null || install_packages python3-venv ||
        die "Python is missing, or its virtual environments, and cannot be installed here: on Debian, apt-get install python3-venv"
    python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' || die "The Python package needs Python 3.11 or later"
    python3 -m venv "$1" || die "A virtual environment for Python cannot be made in $1"
}
