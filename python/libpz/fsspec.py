"""`compression="pz"` for fsspec. Importing this module registers the compression and the suffix ".pz".

>>> import fsspec, libpz.fsspec
>>> with fsspec.open("memory://notes.txt.pz", "wt", compression="infer") as file:
...     _ = file.write("some text")
>>> with fsspec.open("memory://notes.txt.pz", "rt", compression="pz") as file:
...     file.read()
'some text'
"""

from __future__ import annotations

import io
from typing import IO, Any

from fsspec.compression import register_compression

from ._file import open

__all__ = ["open_compressed"]


def open_compressed(
    file: IO[bytes], mode: str = "rb", **options: Any
) -> io.BufferedReader | io.BufferedWriter | io.TextIOWrapper:
    """Read or write the contents of `file`, as `libpz.open` does. fsspec calls this function with mode "r", "w" or "a".
    """
    return open(file, mode if "b" in mode else mode + "b", **options)


register_compression("pz", open_compressed, ["pz"], force=True)
