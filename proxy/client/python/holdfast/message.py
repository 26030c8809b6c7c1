"""Control messages as they arrive, and the checks of their fields.

If a field is absent or null, it has the zero value of its type (protocol/SPEC.md, Messages).
"""

from __future__ import annotations

import base64
import binascii
import json
from typing import Any, Callable, Dict, Optional, TypeVar, cast

from .errors import HoldfastError
from .wire import ExitRecord, PtyExitedMessage

#: A control message whose fields are not checked yet.
Message = Dict[str, Any]

T = TypeVar("T")


def parse(payload: bytes) -> Message:
    """Parse a control message. Errors: `decode`."""
    try:
        m = json.loads(payload)
    except (ValueError, RecursionError) as err:
        raise HoldfastError("decode", f"a message that is no JSON: {err}") from None
    if not isinstance(m, dict) or not isinstance(m.get("type"), str):
        raise HoldfastError("decode", "a message that has no type")
    return m


def utf8(s: str) -> bytes:
    """Return the bytes of a text. Errors: `invalid_argument` if it is not UTF-8, as a path of os.listdir may be."""
    try:
        return s.encode()
    except UnicodeEncodeError as err:
        raise HoldfastError("invalid_argument", "a text that is not UTF-8 cannot be passed") from err


def integer(m: Message, field: str) -> int:
    n = m.get(field)
    if n is None:
        return 0
    if not isinstance(n, int) or isinstance(n, bool) or abs(n) >= 1 << 53:
        raise wrong(m, field)
    return n


def text(m: Message, field: str) -> str:
    s = m.get(field)
    if s is None:
        return ""
    if not isinstance(s, str):
        raise wrong(m, field)
    return s


def flag(m: Message, field: str) -> bool:
    return m.get(field) is True


def data(m: Message, field: str) -> bytes:
    try:
        return base64.b64decode(text(m, field), validate=True)
    except binascii.Error:
        raise wrong(m, field) from None


def member(m: Message, field: str) -> Message:
    """Return a field that must be an object."""
    o = m.get(field)
    if not isinstance(o, dict):
        raise wrong(m, field)
    return o


def wrong(m: Message, field: str) -> HoldfastError:
    return HoldfastError("decode", f"{m.get('type', 'an object')} with an invalid {field}")


def _optional(read: Callable[[Message, str], T], m: Message, field: str) -> Optional[T]:
    """Return a field, or None if it is absent."""
    return None if m.get(field) is None else read(m, field)


def error_of(m: Message) -> HoldfastError:
    """Return the error in an `error` message."""
    return HoldfastError(
        text(m, "code"),
        text(m, "message"),
        retryable=flag(m, "retryable"),
        retry_after_ms=_optional(integer, m, "retry_after_ms"),
        cause=_optional(text, m, "cause"),
        exit=cast("Optional[ExitRecord]", _optional(member, m, "exit")),
        offset=_optional(integer, m, "offset"),
    )


def going_away(m: Message) -> HoldfastError:
    """Return the error of a connection that ended with goaway."""
    return HoldfastError("lost", f"the proxy is ending: {text(m, 'reason')}; connect again", retry_after_ms=integer(m, "retry_after_ms"))


def exit_of_record(r: ExitRecord, session_id: str, instance: str) -> PtyExitedMessage:
    """Return the end of a session from its exit record."""
    m: PtyExitedMessage = {
        "type": "pty_exited",
        "session_id": session_id,
        "pane_id": session_id,
        "instance": instance,
        "exit_code": integer(cast(Message, r), "exit_code"),
        "last_lines": r.get("last_lines") or [],
        "session_title": "",
        "session_description": "",
        "timed_out": r.get("timed_out", False),
    }
    for field in ("reason", "outcome", "signal", "exited_at"):
        if field in r:
            cast(Message, m)[field] = cast(Message, r)[field]
    return m
