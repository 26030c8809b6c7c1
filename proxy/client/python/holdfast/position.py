"""The position of a viewer in the output of a session."""

from __future__ import annotations

from typing import Optional, cast

from .message import Message, flag, integer
from .wire import AttachSpec, Resume


class Position:
    """Follows what an attachment receives, so that it can be resumed."""

    def __init__(self) -> None:
        self.instance = ""
        #: All output before this offset was received or reported as missed.
        self.had = 0
        self._whole = 0  # had before the snapshots that were received in part
        self._offset = 0  # offset of the next byte of output, or of the snapshot that is being received
        self._left = 0  # bytes of the snapshot that were not received yet
        self._is_view = False  # the viewer's own view is shown, which output cannot continue

    @property
    def stored(self) -> int:
        """All output before this offset was received, or is contained in a snapshot that was received completely.

        A viewer that does not know of an incomplete snapshot can resume here.
        """
        return self._whole if self._left > 0 else self.had

    def attached(self, m: Message, instance: str, resume: Optional[Resume]) -> None:
        """Begin where `attached` tells. The attach had these values for resume."""
        if self._left == 0:
            self._whole = resume["offset"] if resume else 0
        self.instance = instance
        self._offset = self.had = integer(m, "offset")
        self._left = integer(m, "snapshot_bytes")
        self._is_view = flag(m, "view")
        if self._left > 0 and resume is not None:
            self.had = resume["offset"] + integer(m, "bytes_missed")

    def resync(self, m: Message) -> None:
        if self._left == 0:
            self._whole = self.had
        self._offset = integer(m, "offset")
        self._left = integer(m, "snapshot_bytes")
        self._is_view = flag(m, "view")
        self.had += integer(m, "bytes_missed")
        self._complete()

    def _complete(self) -> None:
        # An incomplete snapshot does not count.
        if self._left == 0:
            self.had = self._offset

    def output(self, offset: int, n: int) -> None:
        self.had = self._offset = offset + n

    def snapshot(self, n: int) -> int:
        """Count n bytes of a snapshot, and return the number of the remaining bytes."""
        self._left = max(0, self._left - n)
        self._complete()
        return self._left

    def viewed(self, offset: int) -> None:
        self.had = self._offset = offset
        self._is_view = True

    def resume(self, spec: AttachSpec, reshaped: bool) -> AttachSpec:
        """Return the options of an attach that continues at this position.

        If a snapshot was received in part, they request a new one. If the viewer shows a view of its own, or output at
        another size, they request a snapshot of the screen, because output cannot continue it. They never steal, so
        that a client that has attached in the meantime keeps the session.
        """
        snapshot = self._left > 0 or self._is_view or reshaped
        return cast(
            AttachSpec,
            {
                **spec,
                "resume": {"instance": self.instance, "offset": self.had},
                "steal": False,
                "snapshot": snapshot,
                "screen_only": snapshot and self._left == 0,
            },
        )
