"""Lists the blocks of files, recovers damaged files, and predicts costs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import IO, Any, Unpack

from . import _libpz
from ._frames import new_file
from ._types import Buffer, CodecOptions, DecodeOptions, Path


@dataclass(frozen=True, slots=True)
class BlockInfo:
    """One block of a frame. Offsets and sizes are in bytes."""

    number: int
    """Number of the block in its frame, from 0."""
    method: str
    """How the block is coded: "store", "fill", "lz77" or "bwt"."""
    filters: str | None
    """The filters that were applied to the contents first, if any."""
    offset: int
    """Offset of the block's header in the file, or of its payload if the block has no header."""
    compressed_size: int
    """Length of header and payload."""
    payload_offset: int
    """Offset of the payload in the file."""
    payload_size: int
    """Length of the payload."""
    content_offset: int
    """Offset of the block's contents in the frame's contents."""
    content_size: int
    """Length of the block's contents."""
    own_size: int | None
    """If the block repeats parts of earlier blocks, the length of its own bytes."""
    payload_checksum: int
    """CRC-32C of the payload."""
    content_checksum: int
    """CRC-32C of the contents."""


@dataclass(frozen=True, slots=True)
class FrameInfo:
    """One frame of a file. Offsets and sizes are in bytes."""

    number: int
    """Number of the frame in the file, from 0."""
    offset: int
    """Offset of the frame in the file."""
    compressed_size: int
    """Length of the frame in the file: header, blocks, index and footer."""
    content_size: int
    """Length of the frame's contents."""
    version: int
    """Version of the format."""
    pipeline: str
    """The stages that the blocks went through."""
    level: int | None
    """The compression level, if recorded."""
    block_size: int
    """Length of every block's contents but the last's."""
    block_count: int
    """Number of blocks."""
    decode_memory: int
    """Memory for decoding one block at a time."""
    size_in_header: bool
    """Whether the header records the length of the contents."""
    blocks: tuple[BlockInfo, ...]
    """The frame's blocks, in order; empty unless asked for."""


@dataclass(frozen=True, slots=True)
class RecoveryReport:
    """The result of `recover`: what it saved, and what is lost."""

    blocks: int
    """Blocks saved."""
    bytes: int
    """Bytes of contents saved."""
    lost: tuple[tuple[int, int], ...]
    """Ranges of the contents that are lost: first byte, and one past the last."""
    damaged: tuple[tuple[int, int], ...]
    """Ranges of the compressed file that are damaged. An empty one is a place where a frame's header or end is missing."""
    end_unknown: bool
    """Whether more contents may be missing: the end of a frame is missing, so its length is unknown."""


@dataclass(frozen=True, slots=True)
class Device:
    """A device of this machine, beside its CPU."""

    device: str
    """What the argument `device` calls it, such as "opencl:0"."""
    api: str
    """The programming interface that drives it."""
    name: str
    """The name that its driver reports."""
    driver: str
    """The driver and its version."""
    kind: str
    """"discrete", "integrated", "software" (used only if named) or "other"."""
    memory: int
    """Its memory in bytes: free memory, where the driver reports that."""
    compute_units: int
    """The number of its compute units."""


@dataclass(frozen=True, slots=True)
class Prediction:
    """A prediction of how long a job takes. Rates are bytes of contents per second."""

    seconds: float
    """Seconds with the device beside the CPU, or on the CPU alone if the device would not take part."""
    cpu_seconds: float
    """Seconds on the CPU alone."""
    cpu_rate: float
    """Rate of all CPU threads, in memory."""
    cpu_memory: int
    """Bytes of memory that the CPU's threads and their blocks take."""
    device_rate: float | None
    """Rate of the device alone, in its memory."""
    device_problem: str | None
    """Why the device cannot do this work; `None` if it can."""
    device_memory: int | None
    """The most bytes of its own memory that the device may use."""
    opening: float
    """Seconds until the device begins."""
    takes_part: bool
    """Whether the device saves time."""
    stages: tuple[tuple[str, float], ...]
    """Seconds of each stage, if the device did the whole job."""


def list(source: Path | IO[bytes], *, blocks: bool = False) -> tuple[FrameInfo, ...]:
    """List the frames of a compressed file, given as a path or a seekable file object; with `blocks`, also their
    blocks.

    Checks headers, indices and footers, but not contents. A file object is read from its current position, and put back
    there; offsets count from there.
    """

    def frame(fields: dict[str, Any]) -> FrameInfo:
        fields["blocks"] = tuple(BlockInfo(**block) for block in fields["blocks"])
        return FrameInfo(**fields)

    return tuple(frame(fields) for fields in _libpz.frames(source, blocks))


def recover(
    source: Path | IO[bytes], target: Path | IO[bytes], *, fill: bool = False, **options: Unpack[DecodeOptions]
) -> RecoveryReport:
    """Write every undamaged block of `source` to `target`, and report what is lost.

    Both are paths or file objects. `source` must be seekable, and is read from its current position. With `fill`, zeros
    replace lost contents, so saved bytes keep their offsets. If `target` is a path, the file gets its name when it is
    complete. The options are those of `decompress`.
    """
    with new_file(target, source) as file:
        report = _libpz.recover(source, file, fill, **options)
    report["lost"] = tuple(report["lost"])
    report["damaged"] = tuple(report["damaged"])
    return RecoveryReport(**report)


def devices() -> tuple[Device, ...]:
    """List the devices that the argument `device` can name, beside the CPU.

    If a device is missing from the list, using its interface's name raises a `DeviceError` that says why.
    """
    return tuple(Device(**device) for device in _libpz.devices())


def cost(
    size: int,
    level: int = 3,
    *,
    decompress: bool = False,
    sample: Buffer | None = None,
    device: str = "cpu",
    device_memory: int | None = None,
    **options: Unpack[CodecOptions],
) -> Prediction:
    """Predict the time to compress `size` bytes, or to decompress to `size` bytes, on the CPU and on one device.

    Predictions are better with a `sample` of the contents: `cost` then measures some of its blocks, which takes about a
    second. The options are those of `compress`.
    """
    fields = _libpz.cost(size, level, decompress, sample, device, device_memory, **options)
    fields["stages"] = tuple(fields["stages"])
    return Prediction(**fields)
