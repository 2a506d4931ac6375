"""The filter that suits the elements of an array."""

from __future__ import annotations

from typing import Any


def filter_of(dtype: Any) -> str | None:
    """The filter for NumPy's `dtype`, or `None` if there is none.

    Integers get "auto", which looks at each block: whether neighbours differ little is not to be seen in a type.
    """
    size = dtype.itemsize
    if dtype.kind == "f" and size in (2, 4, 8):
        return f"f{8 * size}"
    if dtype.kind == "c" and size in (8, 16):
        return f"f{4 * size}"
    if dtype.kind in "iumM" and size > 1:
        return "auto"
    return None
