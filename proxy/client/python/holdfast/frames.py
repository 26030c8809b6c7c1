"""Frames as described in protocol/SPEC.md: [u32 length][u8 kind][payload]."""

from __future__ import annotations

import struct
from typing import Tuple

from .errors import HoldfastError

CONTROL, OUTPUT, INPUT, SNAPSHOT, VIEW = range(5)

#: Largest size of a frame's kind and payload in bytes.
MAX_FRAME = 1 << 20
#: Largest size before the hello was accepted.
MAX_HELLO = 1 << 16
#: Largest size of the data in one frame that this client sends.
MAX_DATA = 32768

LENGTH = struct.Struct(">I")
HEAD = struct.Struct(">IB")
DATA_HEAD = struct.Struct(">IQ")


def frame(kind: int, payload: bytes) -> bytes:
    """Return a whole frame. Errors: `frame_too_large`."""
    if len(payload) + 1 > MAX_FRAME:
        raise HoldfastError("frame_too_large", f"a frame of {len(payload) + 1} bytes; the limit is {MAX_FRAME}")
    return HEAD.pack(len(payload) + 1, kind) + payload


def data_frame(kind: int, attachment: int, offset: int, data: bytes) -> bytes:
    """Return a frame of input, output, snapshot or view."""
    return frame(kind, DATA_HEAD.pack(attachment, offset) + data)


def parse_data(payload: bytes) -> Tuple[int, int, bytes]:
    """Return the attachment, the offset and the data of a frame. Errors: `decode`."""
    if len(payload) < DATA_HEAD.size:
        raise HoldfastError("decode", f"a data frame of {len(payload)} bytes")
    attachment, offset = DATA_HEAD.unpack_from(payload)
    return attachment, offset, payload[DATA_HEAD.size :]
