#!/usr/bin/env python3
"""Compares sizes with and without filters on the sets that typed-sets.py makes.

Usage: scripts/typed-bench.py PZ FOLDER [--best] [--others] [--csv FILE]

For each set and each of -3, -9 and -p fse, prints the size with --filter auto relative to the size without a filter,
and at the end the geometric means. --best also tries every chain of a long list. --others compares with pcodec at level
8 and with blosc2's bit shuffle and zstd at level 5 (pip install numpy pcodec blosc2).
"""

import argparse
import csv
import math
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

CODERS = {"-3": ["-3"], "-9": ["-9"], "fse": ["-p", "fse"]}

CHAINS = [
    f"{first}{last}"
    for width in (2, 4, 8)
    for first in (
        "", f"rotate{width},", f"xor{width},", f"delta{width},", f"delta{width},zigzag{width},",
        f"delta{width}x2,zigzag{width},", f"delta{width}x3,zigzag{width},",
        f"deltadelta{width},zigzag{width},",
    )
    for last in (f"transpose{width}", f"bits{width}")
] + [
    f"decimal{width}:{digits}{then},transpose{width}"
    for width in (4, 8)
    for digits in (0, 1, 2, 3)
    for then in ("", f",zigzag{width}", f",delta{width}")
] + [
    f"dictionary{width}:{index}{then}"
    for width in (4, 8)
    for index in (1, 2)
    for then in ("", f",delta{index}", f",delta{index},zigzag{index}", ",transpose2", ",delta2,transpose2")
] + [
    "delta1", "delta1x2", "delta1x3", "delta1x4", "delta1x3,transpose3", "transpose3", "transpose12",
    "transpose20", "transpose24", "delta4x5,transpose20", "delta4x6,transpose24", "delta8x3,transpose24",
]  # fmt: skip


def size(pz, path, coder, chain):
    """Bytes of the compressed set, after comparing the restored contents."""
    command = [pz, "compress", *CODERS[coder], "-T", "1", "--filter", chain, "-c", path]
    packed = subprocess.run(command, check=True, capture_output=True).stdout
    restored = subprocess.run([pz, "-d", "-c"], input=packed, check=True, capture_output=True).stdout
    assert restored == Path(path).read_bytes(), (path, command)
    return len(packed)


def dtype(name):
    """The type in a set's name; `None` for records and bytes."""
    for text, found in {
        "bf16": "u2", "f16": "f2", "f32": "f4", "f64": "f8", "i16": "i2", "u16": "u2", "i32": "i4",
        "i64": "i8", "safetensors": "f4", "npy": "f8",
    }.items():  # fmt: skip
        if text in name:
            return found
    return None


def others(path):
    """Bytes with pcodec (`None` if the set is not an array of numbers), and with blosc2."""
    import blosc2
    import numpy as np
    from pcodec import ChunkConfig, standalone

    data, kind = path.read_bytes(), dtype(path.name)
    blosc = len(blosc2.compress2(
        data, typesize=int(kind[1]) if kind else 4, codec=blosc2.Codec.ZSTD, clevel=5,
        filters=[blosc2.Filter.BITSHUFFLE],
    ))  # fmt: skip
    if not kind:
        return None, blosc
    head = {"npy": 128, "ors": 8 + int.from_bytes(data[:8], "little")}.get(path.name[-3:], 0)
    data = data[head:]
    numbers = np.frombuffer(data[: len(data) // int(kind[1]) * int(kind[1])], kind)
    return head + len(standalone.simple_compress(numbers, ChunkConfig(compression_level=8))), blosc


def mean(ratios):
    ratios = list(ratios)
    return math.exp(sum(map(math.log, ratios)) / len(ratios)) if ratios else math.nan


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("pz")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--best", action="store_true", help="also try a long list of chains")
    parser.add_argument("--others", action="store_true", help="compare with pcodec and blosc2")
    parser.add_argument("--csv", type=Path, help="write all sizes to this file")
    arguments = parser.parse_args()
    paths = sorted(arguments.folder.iterdir())
    chains = ["none", "auto", *(CHAINS if arguments.best else [])]
    runs = [(path, coder, chain) for path in paths for coder in CODERS for chain in chains]

    def run(what):
        path, coder, chain = what
        try:
            return size(arguments.pz, str(path), coder, chain)
        except subprocess.CalledProcessError as error:
            sys.exit(f"{what}: {error.stderr}")

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        sizes = dict(zip(runs, pool.map(run, runs)))
    if arguments.csv:
        with arguments.csv.open("w") as file:
            rows = ((path.name, coder, chain, size) for (path, coder, chain), size in sizes.items())
            csv.writer(file).writerows(rows)

    def relative(path, coder, chain):
        return sizes[path, coder, chain] / sizes[path, coder, "none"]

    def best(path, coder):
        return min(chains, key=lambda chain: sizes[path, coder, chain])

    for path in paths:
        cells = []
        for coder in CODERS:
            cell = f"{coder} {relative(path, coder, 'auto'):.3f}"
            if arguments.best:
                chain = best(path, coder)
                cell += f" (best {relative(path, coder, chain):.3f} {chain})"
            cells.append(cell)
        print(f"{path.name:20} {'  '.join(cells)}")
    for coder in CODERS:
        print(f"{coder}: auto {mean(relative(path, coder, 'auto') for path in paths):.4f}", end="")
        if arguments.best:
            print(f", best {mean(relative(path, coder, best(path, coder)) for path in paths):.4f}", end="")
        print()
    if arguments.others:
        ahead, against = 0, []
        for path in paths:
            pcodec, blosc = others(path)
            auto = sizes[path, "-3", "auto"]
            ahead += auto < blosc
            if pcodec:
                against.append(auto / pcodec)
            print(f"{path.name:20} -3 {auto:8}  pcodec {pcodec or '-':>8}  blosc2 {blosc:8}")
        print(f"-3 against pcodec: {mean(against):.4f} on {len(against)} sets; smaller than blosc2 on {ahead} of {len(paths)}")


if __name__ == "__main__":
    main()
