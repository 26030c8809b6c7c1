"""Input that the supervisor has not accepted yet."""

from __future__ import annotations

from typing import Optional, Tuple

from .frames import MAX_DATA


class InputBuffer:
    """Stores written input until it was accepted, so that it can be sent again on another connection."""

    def __init__(self) -> None:
        self._data = bytearray()
        #: Offset of the first stored byte. All input before it was accepted.
        self.base = 0
        self._sent = 0  # offset of the next byte to send on this connection

    def __len__(self) -> int:
        return len(self._data)

    def add(self, data: bytes) -> None:
        self._data += data

    def accepted(self, offset: int) -> None:
        """Remove the input before an offset, because the supervisor has accepted it."""
        n = min(offset - self.base, len(self._data))
        if n <= 0:
            return
        del self._data[:n]
        self.base += n
        self._sent = max(self._sent, self.base)

    def resume(self, offset: int, first: bool) -> None:
        """Continue at an offset, up to which the session has accepted the writer's input.

        The first attachment of a known writer begins there, too. If the offset is before the base, the session has
        forgotten this writer. The accepted input must not be sent again, so the remaining input gets new offsets.
        """
        if first or offset < self.base:
            self.base = self._sent = offset
            return
        self.accepted(offset)
        self._sent = max(self.base, min(offset, self.base + len(self._data)))

    def next(self) -> Optional[Tuple[int, bytes]]:
        """Return the offset and the bytes of the input to send next, if there is any."""
        start = self._sent - self.base
        data = bytes(self._data[start : start + MAX_DATA])
        if not data:
            return None
        offset = self._sent
        self._sent += len(data)
        return offset, data
