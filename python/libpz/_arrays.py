"""NumPy's arrays and torch's tensors as bytes. Neither package is imported before it is needed."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from ._errors import TensorError
from ._header import DTYPES


def to_bytes(tensor: Any, name: str) -> tuple[str, tuple[int, ...], Any]:
    """The type, the shape and the bytes of an array or tensor."""
    if type(tensor).__module__.partition(".")[0] == "torch":
        return _torch_to_bytes(tensor, name)
    import numpy

    array = numpy.asarray(tensor, order="C")
    if array.dtype.byteorder == ">":
        array = array.astype(array.dtype.newbyteorder("<"))
    dtype = _safetensors_name("numpy", array.dtype.name, name)
    return dtype, array.shape, array.reshape(-1).view(numpy.uint8)


def _torch_to_bytes(tensor: Any, name: str) -> tuple[str, tuple[int, ...], Any]:
    import torch

    dtype = _safetensors_name("torch", str(tensor.dtype).removeprefix("torch."), name)
    # A complex tensor may be marked as conjugated or negated while its memory still holds the original numbers.
    data = tensor.detach().cpu().resolve_conj().resolve_neg().contiguous()
    return dtype, tuple(tensor.shape), data.reshape(-1).view(torch.uint8).numpy()


def empty(name: str, dtype: str, shape: tuple[int, ...], framework: str, to: str | None = None) -> tuple[Any, Any]:
    """An array or tensor to fill, and its bytes: as a tensor, unless the host can write to it."""
    if framework == "torch":
        import torch

        torch_type = _own_type(torch, DTYPES[dtype].torch, dtype, name)
        tensor = _made(name, lambda: torch.empty(shape, dtype=torch_type, device=to))
        data = tensor.reshape(-1).view(torch.uint8)
        return tensor, data if is_on_device(to) else data.numpy()
    import numpy

    numpy_type = _numpy_type(numpy, dtype, name)
    array = _made(name, lambda: numpy.empty(shape, numpy_type))
    return array, array.reshape(-1).view(numpy.uint8)


def _made(name: str, make: Callable[[], Any]) -> Any:
    """The result of `make`. Raises an error if the package refuses the shape, since each package has its own limits."""
    try:
        return make()
    except ValueError as error:
        raise TensorError(f"tensor {name!r} has a shape that cannot be made: {error}") from error


def is_on_device(to: str | None) -> bool:
    """Whether a torch device has memory of its own."""
    return to is not None and str(to).partition(":")[0] != "cpu"


def stream(to: str | None) -> Any:
    """The torch stream whose work must end before ours begins."""
    import torch

    return torch.cuda.current_stream(to)


def _numpy_type(numpy: Any, dtype: str, name: str) -> Any:
    own = DTYPES[dtype].numpy
    if own is None or hasattr(numpy, own):
        return numpy.dtype(_own_type(numpy, own, dtype, name))
    try:
        return numpy.dtype(getattr(importlib.import_module("ml_dtypes"), own))
    except ImportError:
        message = f"tensor {name!r} has the type {dtype}, for which NumPy needs the package ml_dtypes"
        raise TensorError(message) from None


def _own_type(module: Any, own: str | None, dtype: str, name: str) -> Any:
    if own is None or not hasattr(module, own):
        raise TensorError(f"tensor {name!r} has the type {dtype}, which {module.__name__} lacks")
    return getattr(module, own)


def _safetensors_name(framework: str, own: str, name: str) -> str:
    for dtype, known in DTYPES.items():
        if getattr(known, framework) == own:
            return dtype
    raise TensorError(f"tensor {name!r} has the type {own}, which files of tensors lack")
