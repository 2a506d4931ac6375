"""The exceptions of libpz. Failed calls of the system are plain `OSError`s."""


class Error(Exception):
    """Base of all exceptions of libpz."""


class InputError(Error, ValueError):
    """Base of the exceptions for compressed input that is damaged, cut short, or of an unknown kind."""

    frame: int
    """Number of the frame, from 0."""
    block: int | None
    """Number of the block in its frame, from 0; `None` in a header, an index or a footer."""
    offset: int
    """Byte offset of the damaged structure in the compressed input."""


class NotPzError(InputError):
    """The input does not begin with a pz frame."""


class CorruptError(InputError):
    """The input breaks a rule of the format, or a checksum does not agree."""


class TruncatedError(InputError, EOFError):
    """The input ends in the middle of a frame."""


class UnsupportedError(InputError):
    """The input uses a part of the format that this version does not know."""


class UntrustedModuleError(InputError):
    """The input needs a module, a program by its author, that `allow_modules` does not allow to run."""

    sha256: str
    """SHA-256 of the module, in hexadecimal digits."""


class OutputLimitError(Error, ValueError):
    """The contents are longer than `max_output`."""

    limit: int


class MemoryLimitError(Error, MemoryError):
    """The work cannot be done in `memory` or `max_memory`, not even one block at a time."""

    needed: int
    limit: int


class OutOfMemoryError(Error, MemoryError):
    """The system refused memory."""

    needed: int


class OptionError(Error, ValueError):
    """There is no such level, pipeline, filter, block size, window or device name, or no such mode or framework."""


class BufferTooSmallError(Error, ValueError):
    """The result does not fit into the buffer."""

    needed: int
    len: int


class UnsuitableBufferError(Error, BufferError, ValueError):
    """A buffer, array or tensor cannot be used like this: its bytes do not lie one after another, cannot be written to,
    are elsewhere, or refer to Python objects; or two buffers overlap, or have the wrong length.
    """


class ChangedError(Error, ValueError):
    """The input does not have the length that was declared."""

    declared: int
    seen: int


class RangeError(Error, IndexError):
    """A range begins or ends outside the contents."""

    start: int
    end: int
    len: int


class DeviceError(Error, OSError):
    """A device is missing or does not open."""


class InUseError(Error, RuntimeError):
    """Another thread is using the object, or it was made before a fork."""


class InternalError(Error, RuntimeError):
    """A bug in libpz."""


class TensorError(Error, ValueError):
    """A file is no dictionary of tensors, or a tensor has a type that the framework lacks."""


for _class in [value for value in globals().values() if isinstance(value, type)]:
    # Show users the public module name.
    _class.__module__ = "libpz"
