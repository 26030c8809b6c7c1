"""The one exception of this package."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Optional

if TYPE_CHECKING:
    from .wire import ExitRecord


class HoldfastError(Exception):
    """A failure. `code` is stable and for programs; the text is for people.

    Besides the codes of the protocol (protocol/SPEC.md, Errors) the client has these:

    - `connect`: no proxy could be reached;
    - `programs_missing`: there are no programs for this system;
    - `lost`: the connection was lost, and it is not known whether the request was carried out;
    - `decode`: the proxy sent a malformed message;
    - `client_closed`: close or detach was called;
    - `stolen`: another client attached with steal.
    """

    def __init__(
        self,
        code: str,
        message: str,
        *,
        retryable: Optional[bool] = None,
        retry_after_ms: Optional[int] = None,
        cause: Optional[str] = None,
        exit: Optional[ExitRecord] = None,
        offset: Optional[int] = None,
    ) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message
        #: The request may succeed later, after `retry_after_ms` milliseconds if that is set.
        self.retryable = code in ("connect", "lost") if retryable is None else retryable
        self.retry_after_ms = retry_after_ms
        #: For `spawn_failed`: the code of the cause, such as `not_found`.
        self.cause = cause
        #: For `exited_early` and `session_exited`: the exit record.
        self.exit = exit
        #: For `input_full`, `input_gap` and `line_too_long`: the offset up to which the input was accepted.
        self.offset = offset

    @property
    def is_lost(self) -> bool:
        """The result of a request is unknown and may be available later, because a connection was lost.

        If the supervisor has died during the request, the proxy says that the request must not be made again, because the
        supervisor may have died of it.
        """
        return self.code == "lost" or self.retryable and self.code in ("supervisor_unreachable", "upgrading")


def as_error(err: BaseException) -> HoldfastError:
    """Return the error of a connection that an exception has ended."""
    if isinstance(err, HoldfastError):
        return err
    if isinstance(err, asyncio.IncompleteReadError):
        return HoldfastError("lost", "the connection was lost")
    if isinstance(err, OSError):
        return HoldfastError("lost", f"the connection was lost: {err}")
    # A message lacks a field that it must have, or has a field of another type.
    return HoldfastError("decode", f"{type(err).__name__}: {err}")


def late(seconds: float, retryable: bool) -> HoldfastError:
    """Return the error of a request that was not answered in time."""
    return HoldfastError("timeout", f"no answer came within {seconds:g} s, so it is not known whether the request was carried out", retryable=retryable)


def closed() -> HoldfastError:
    return HoldfastError("client_closed", "it was closed")
