"""Subscriptions to the events of all sessions."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass
from typing import Callable, Deque, Optional, Tuple, cast

from .connection import Connection, Dialer, Room, retry_after
from .errors import HoldfastError, as_error, closed, late
from .message import Message, error_of, going_away, integer, text
from .wire import Notification, PtyExitedMessage, SessionInfo

#: Events that may wait for the caller. If there are more, the client reads no more.
WINDOW = 1024


@dataclass(frozen=True)
class SessionEvent:
    """An event of a session. `event` names it: `created`, `exited`, `forgotten`, `title` and others of the protocol.

    `exited` has `exit` and no `session`. For `missed`, `missed` is the number of events that this subscriber has lost,
    or 0 if that is not known; `list` then returns the present sessions.
    """

    seq: int
    event: str
    at: str = ""
    session: Optional[SessionInfo] = None
    exit: Optional[PtyExitedMessage] = None
    missed: int = 0
    notification: Optional[Notification] = None


class Subscription:
    """An asynchronous iterator of the events of all sessions. After a lost connection it continues with the next event."""

    def __init__(self, dialer: Dialer, after: Optional[Tuple[str, int]], ended: Callable[[Subscription], None]) -> None:
        self._dialer = dialer
        self._instance, self._seq = after or ("", 0)
        self._ended = ended
        self._events: Deque[SessionEvent] = deque()
        self._room = Room(WINDOW)
        self._arrived = asyncio.Event()
        self._subscribed = asyncio.Event()
        self._err: Optional[HoldfastError] = None
        self._is_over = False
        self._conn: Optional[Connection] = None
        self._timer: asyncio.TimerHandle  # ends a connection on which the subscription is not answered
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def ready(self) -> None:
        """Wait until the proxy has accepted the subscription, which has all events after that time."""
        await self._subscribed.wait()
        if self._is_over:
            raise self._err or closed()

    def __aiter__(self) -> Subscription:
        return self

    async def __anext__(self) -> SessionEvent:
        while not self._events:
            if self._err is not None:
                raise self._err
            if self._is_over:
                raise StopAsyncIteration
            self._arrived.clear()
            await self._arrived.wait()
        self._room.remove(1)
        return self._events.popleft()

    def close(self) -> None:
        self._events.clear()
        self._end(None)
        self._task.cancel()

    def _end(self, err: Optional[HoldfastError]) -> None:
        if self._is_over:
            return
        self._is_over, self._err = True, err
        self._arrived.set()
        self._subscribed.set()
        self._ended(self)

    async def _run(self) -> None:
        times = self._dialer.times
        wait = times.min
        while True:
            before = self._seq
            await self._room.wait()  # otherwise the answer would be read late
            try:
                why = await self._serve(await self._dialer.redial())
            except HoldfastError as err:
                why = err
            if not why.is_lost and not why.retryable:
                return self._end(why)  # another attempt would fail in the same way
            await asyncio.sleep(max(wait, retry_after(why)))
            wait = times.min if self._seq != before else min(2 * wait, times.max)

    async def _serve(self, conn: Connection) -> HoldfastError:
        """Subscribe on a connection, and return the reason for its end."""
        self._conn = conn
        answer = self._dialer.times.answer
        self._timer = asyncio.get_running_loop().call_later(answer, conn.expire, late(answer, True))
        try:
            after = {"instance": self._instance, "after": self._seq} if self._instance else {}
            conn.send({"type": "events", **after})
            while True:
                await self._room.wait()
                m = await conn.receive()
                if isinstance(m, dict):
                    self._receive(m)
        except Exception as err:
            return as_error(err)
        finally:
            self._timer.cancel()
            self._conn = None
            conn.close()

    def _expire_if_silent(self, since: int) -> None:
        """End the connection if it has received nothing, unless it is not read because the caller is slow."""
        if self._conn is not None and not self._room.is_full:
            self._conn.expire_if_silent(since)

    def _receive(self, m: Message) -> None:
        """Process a message. An error that it raises ends the connection."""
        kind = m["type"]
        if kind == "goaway":
            raise going_away(m)
        if kind == "error":
            raise error_of(m)
        if kind == "subscribed":
            instance = text(m, "instance")
            is_other = self._instance not in ("", instance)
            self._instance, self._seq = instance, integer(m, "seq")
            self._subscribed.set()
            self._timer.cancel()
            if is_other:  # another instance numbers its events from the beginning
                self._put(SessionEvent(self._seq, "missed"))
        elif kind == "event":
            self._seq = integer(m, "seq")
            self._put(SessionEvent(
                self._seq, text(m, "event"), text(m, "at"), m.get("session"), missed=integer(m, "missed"), notification=m.get("notification"),
            ))
        elif kind == "pty_exited" and m.get("seq") is not None:
            self._seq = integer(m, "seq")
            self._put(SessionEvent(self._seq, "exited", text(m, "exited_at"), exit=cast(PtyExitedMessage, m)))

    def _put(self, event: SessionEvent) -> None:
        self._events.append(event)
        self._room.add(1)
        self._arrived.set()
