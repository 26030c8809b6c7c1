"""The client of a proxy, and later of its successors."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import math
import secrets
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Callable, Dict, Iterable, List, Optional, Set, Tuple, Union, cast

from . import programs
from .attachment import Attachment, State
from .connection import Connection, Dial, Dialer, Redial, retry_after, unix_socket
from .errors import HoldfastError, closed, late
from .message import Message, data, error_of, going_away, integer, member, text, utf8, wrong
from .subscription import Subscription
from .wire import (
    REPEATABLE, AttachSpec, AwaitedMessage, AwaitSpec, AwayContentMessage, ChangesContentMessage, ChangesSpec, CommandsContentMessage, ExitRecord,
    HistoryContentMessage, HistorySpec, Limits, MarkedMessage, PastContentMessage, PastSize, PastSpec, PastTime, ReopenSpec, ScreenContentMessage,
    ScreenSpec, SearchContentMessage, SearchPastContentMessage, SearchPastSpec, SearchSpec, SessionInfo, SharedMessage, SpawnedMessage,
    SpawnSpec, StatusReportMessage, TicketIssuedMessage, WelcomeMessage,
)

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Type

    from typing_extensions import Unpack

#: Bytes of input, and keys, in one request.
INPUT_BYTES = 256 << 10
MAX_KEYS = 256
#: Messages in the reply to one request.
MAX_PARTS = 256
#: Requests that may wait for a connection or a reply.
MAX_REQUESTS = 4096
RETRY_S = 0.02
#: The longest time that an answer may take after the time limit of a wait, which the supervisor measures. It suffices for
#: the replacement of both processes.
ANSWER_S = 4.0


@dataclass(frozen=True)
class PastOutput:
    """Output of a session: `offset` is the offset of the first byte of `data`, and `end` the number of bytes so far.

    `times` and `sizes` tell when it was printed, and the sizes of the terminal; only read_past sets them.
    """

    instance: str
    offset: int
    end: int
    data: bytes
    times: List[PastTime] = field(default_factory=list)
    sizes: List[PastSize] = field(default_factory=list)


class _Waiting:
    """A request that waits for its reply."""

    def __init__(self, conn: Connection) -> None:
        self.conn = conn  # that carries the request
        self.since = Connection.received
        self.is_sent = False
        self.parts: List[Message] = []
        self.reply: asyncio.Future[List[Message]] = asyncio.get_running_loop().create_future()

    def fail(self, err: HoldfastError) -> None:
        if not self.reply.done():
            self.reply.set_exception(err)


class Holdfast:
    """A client that is connected to a proxy and later to its successors.

    All requests share one connection; each attachment and subscription has one of its own. If the connection is lost
    during a request, the client repeats the request, unless it must not be repeated. Answers are the messages of the
    protocol, as dictionaries. Every method may raise a HoldfastError.
    """

    def __init__(self, dialer: Dialer) -> None:
        """Callers use connect or start instead."""
        self._dialer = dialer
        self._state: State = "connected"
        self._conn: Optional[Connection] = None
        self._connected = asyncio.Event()
        self._last: Optional[HoldfastError] = None  # the reason why there is no connection
        self._welcome: Optional[WelcomeMessage] = None
        self._has_answered = False  # the connection has answered a request
        self._waiting: Dict[str, _Waiting] = {}
        self._requests = 0  # made so far
        self._requests_waiting = 0
        self._is_closing = False
        self._attachments: Set[Attachment] = set()
        self._subscriptions: Set[Subscription] = set()
        self._task: Optional[asyncio.Task[None]] = None

    @classmethod
    async def connect(
        cls,
        path: Optional[str] = None,
        *,
        dial: Optional[Dial] = None,
        client: str = "holdfast-python",
        token: Optional[str] = None,
        secret: Optional[str] = None,
        redial: Redial = Redial(),
    ) -> Holdfast:
        """Connect to a proxy at the path of its Unix socket; default that of this user's proxy.

        `dial` replaces the Unix socket by another stream of frames, such as that of `proxy stdio` after its greeting. `client` is a
        name for people. `secret` is the shared secret, if the proxy has one; `token` is one that the policy knows.

        Errors: `connect` if no proxy can be reached, the error with which the proxy refuses the hello
        (`unauthorized`, `protocol_mismatch`), and `lost`.
        """
        if dial is not None and path is not None:
            raise HoldfastError("invalid_argument", "give one of path and dial, not both")
        if path == "":
            raise HoldfastError("invalid_argument", "path is empty; leave it out for the proxy of this user")
        self = cls(Dialer(dial or unix_socket(path or programs.default_socket()), client=client, token=token, secret=secret, redial=redial))
        deadline = time.monotonic() + redial.give_up
        wait = redial.min
        while True:
            try:
                conn = await self._dialer.dial()
                break
            except HoldfastError as err:
                # If no proxy can be reached, waiting may never help. A proxy that announces its end has a successor.
                if err.code == "connect" or not err.retryable or time.monotonic() > deadline:
                    raise
                await asyncio.sleep(max(wait, retry_after(err)))
            wait = min(2 * wait, redial.max)
        self._use(conn)
        self._task = asyncio.get_running_loop().create_task(self._run(conn))
        return self

    @classmethod
    async def start(
        cls,
        *,
        dir: str,
        app: str = "",
        programs_dir: Optional[str] = None,
        on_upgrade: Optional[Callable[[programs.Upgrade], None]] = None,
        client: Optional[str] = None,
        secret: Optional[str] = None,
        redial: Redial = Redial(),
    ) -> Holdfast:
        """Return a client of the proxy that uses the directory `dir`, which is made if it is missing.

        If no programs run there, start starts those of this package. If older ones run, it replaces them; if newer ones
        run, it connects to them. No session ends, whatever fails. If a replacement fails, the older programs continue,
        the client is connected to them, and `on_upgrade` receives the error. If the proxy crashes later, the client
        starts it again.

        `app` is the version of the app, for people. `programs_dir` has the programs `proxy` and `supervisor`; default
        those in this package. Errors: `programs_missing` if there are no programs for this system; `connect` if the
        programs cannot be copied or do not start; those of connect.
        """
        daemon = await programs.prepare(dir, programs_dir)
        self = await cls.connect(dial=daemon.dial, client=client or f"app {app}".strip(), secret=secret, redial=redial)
        try:
            await daemon.upgrade(self.status, on_upgrade)
        except BaseException:
            await self.close()
            raise
        return self

    @property
    def state(self) -> State:
        return self._state

    @property
    def welcome(self) -> WelcomeMessage:
        """The proxy's welcome on the last connection."""
        return cast(WelcomeMessage, self._welcome)

    async def __aenter__(self) -> Holdfast:
        return self

    async def __aexit__(self, kind: Optional[Type[BaseException]], err: Optional[BaseException], trace: Optional[TracebackType]) -> None:
        await self.close()

    async def close(self) -> None:
        """Detach all attachments, and end the subscriptions and the connection. The sessions continue."""
        if self._is_closing:
            return
        self._is_closing = True
        if self._state != "closed":
            self._shut(closed())
        for subscription in list(self._subscriptions):
            subscription.close()
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        if self._conn is not None:  # the task was cancelled before it began to serve the connection
            self._conn.close()
            self._conn = None
        await asyncio.gather(*(a.detach() for a in list(self._attachments)))

    # The connection of the requests.

    def _use(self, conn: Connection) -> None:
        self._conn, self._welcome, self._state = conn, conn.welcome, "connected"
        self._has_answered = False
        self._connected.set()

    def _shut(self, why: HoldfastError) -> None:
        self._state, self._last = "closed", why
        self._connected.set()  # requests that wait for it fail

    async def _run(self, conn: Connection) -> None:
        """Serve one connection after another until close is called, or until no other can be made."""
        times = self._dialer.times
        wait = 0.0
        while True:
            began = time.monotonic()
            why = await self._serve(conn)
            self._last, self._state = why, "reconnecting"
            # If a proxy accepts and closes connections again and again, the waits grow.
            was_useful = self._has_answered or time.monotonic() - began > times.max
            wait = 0.0 if was_useful else min(max(2 * wait, times.min), times.max)
            try:
                await asyncio.sleep(max(wait, retry_after(why)))
                conn = await self._dialer.redial()
            except HoldfastError as err:
                return self._shut(err)  # another attempt would fail in the same way
            self._use(conn)

    async def _serve(self, conn: Connection) -> HoldfastError:
        """Pass replies to the requests until the connection is lost, and return the reason."""
        fault: Optional[HoldfastError] = None  # the error with which the proxy is about to close the connection
        why = closed()
        try:
            while True:
                m = await conn.receive()
                if isinstance(m, dict):
                    fault = self._receive(m) or fault
        except HoldfastError as err:
            why = err
            return why
        finally:
            self._conn = None
            self._connected.clear()
            conn.close()
            # If the proxy has closed the connection because of a malformed request, that must not be repeated. Nor must a
            # request be if its reply is malformed, because the next reply would be, too.
            is_final = why.code in ("client_closed", "decode")
            for w in list(self._waiting.values()):
                w.fail(fault or (why if is_final else HoldfastError("lost", why.message, retry_after_ms=why.retry_after_ms)))

    def _receive(self, m: Message) -> Optional[HoldfastError]:
        if m["type"] == "goaway":
            raise going_away(m)
        w = self._waiting.get(text(m, "request_id"))
        if w is None:
            is_fault = m["type"] == "error" and m.get("request_id") is None and m.get("retryable") is not True
            return error_of(m) if is_fault else None
        self._has_answered = True
        if m["type"] == "error":
            w.fail(error_of(m))
            return None
        w.parts.append(m)
        if len(w.parts) > MAX_PARTS:
            raise HoldfastError("decode", "more parts than any answer has")
        if not (m["type"] == "sessions" and m.get("more") is True) and not w.reply.done():
            w.reply.set_result(w.parts)
        return None

    async def _connection(self, end: float) -> Connection:
        """Return the present connection, or wait for the next one, until a time at the latest."""
        deadline = min(time.monotonic() + self._dialer.times.give_up, end)
        while self._conn is None:
            if self._state == "closed":
                raise self._last or closed()
            try:
                await asyncio.wait_for(self._connected.wait(), deadline - time.monotonic())
            except asyncio.TimeoutError:
                raise HoldfastError("connect", self._last.message if self._last else "there is no connection") from None
        return self._conn

    async def _once(self, m: Message, limit: float, end: float = math.inf) -> List[Message]:
        """Make a request once, and return the messages of its reply.

        Errors: `timeout` if the reply takes more than a number of seconds, or has not come at a time.
        """
        if self._requests_waiting >= MAX_REQUESTS:
            raise HoldfastError("limit_exceeded", f"{MAX_REQUESTS} requests wait for an answer")
        self._requests_waiting += 1
        try:
            conn = await self._connection(end)
            self._requests += 1
            request_id = str(self._requests)
            w = self._waiting[request_id] = _Waiting(conn)
            limit = min(limit, end - time.monotonic())
            timer = None if limit == math.inf else asyncio.get_running_loop().call_later(limit, self._expire, w, late(limit, may_repeat(m)))
            try:
                conn.send({**m, "request_id": request_id})
                try:
                    await conn.drain()
                except HoldfastError:
                    pass  # the reply fails as well
                w.is_sent = True
                return await w.reply
            finally:
                if timer is not None:
                    timer.cancel()
                del self._waiting[request_id]
                if w.reply.done() and not w.reply.cancelled():
                    w.reply.exception()  # it may be that nothing else reads it
        finally:
            self._requests_waiting -= 1

    def _expire(self, w: _Waiting, err: HoldfastError) -> None:
        """Fail a request, because its answer is late. If its connection is silent, too, end it.

        Then the silent connections of attachments and subscriptions, on which no answer is due, may also be lost without
        notice.
        """
        w.fail(err)
        if not w.is_sent:
            w.conn.expire(HoldfastError("lost", err.message))
        elif not w.conn.expire_if_silent(w.since):
            return
        if self._conn is w.conn:  # later requests use the next one
            self._conn = None
            self._connected.clear()
        for attachment in self._attachments:
            attachment._expire_if_silent(w.since)
        for subscription in self._subscriptions:
            subscription._expire_if_silent(w.since)

    async def _call(self, m: Message) -> List[Message]:
        """Make a request. If the connection is lost, make it again, unless it must not be repeated."""
        limit = self._dialer.times.answer + (m.get("early_exit_ms") or 0) / 1000
        while True:
            try:
                return await self._once(m, limit)
            except HoldfastError as err:
                if not may_repeat(m) or err.code != "lost" or self._state == "closed":
                    raise

    async def _ask(self, m: Message, answer: str) -> Any:
        return _reply_to(m, await self._call(m), answer)

    async def _ok(self, m: Message) -> None:
        await self._ask(m, "ok")

    async def _long(self, m: Message, answer: str, timeout_ms: Optional[int]) -> Any:
        """Make a request that may take long. After a lost connection, make it again with the remaining time.

        The supervisor measures the time. If no answer comes, because a process was stopped, for example, the request
        fails with `timeout` some time later.
        """
        seconds = math.inf if timeout_ms is None else timeout_ms / 1000
        deadline = time.monotonic() + seconds
        grace = min(ANSWER_S, self._dialer.times.answer)
        while True:
            left = None if timeout_ms is None else max(0, int((deadline - time.monotonic()) * 1000))
            try:
                return _reply_to(m, await self._once({**m, "timeout_ms": left}, math.inf, deadline + grace), answer)
            except HoldfastError as err:
                if time.monotonic() >= deadline + grace and (err.is_lost or err.code == "connect"):
                    raise late(seconds + grace, True) from err
                if not err.is_lost or self._state == "closed":
                    raise
            await asyncio.sleep(RETRY_S)

    # Requests.

    async def list(self, *, originator: Optional[str] = None, labels: Optional[Dict[str, str]] = None) -> List[SessionInfo]:
        """Return all sessions, the oldest first; or those of an originator, or those that have all of these labels."""
        parts = await self._call({"type": "list", "originator": originator, "labels": labels or None})
        sessions: List[SessionInfo] = []
        for m in parts:
            if m["type"] != "sessions" or not isinstance(m.get("sessions"), list):
                raise wrong(m, "sessions")
            sessions += m["sessions"]
        return sessions

    async def info(self, session_id: str) -> SessionInfo:
        """Errors: `session_not_found`."""
        return cast(SessionInfo, member(await self._ask({"type": "info", "session_id": session_id}, "session"), "session"))

    async def spawn(self, **spec: Unpack[SpawnSpec]) -> SpawnedMessage:
        """Start a session, and check that its child does not end at once. Without `argv` it is the login shell.

        After a lost connection this starts no second session. Errors: `exited_early` with `exit`, `spawn_failed` with
        `cause`, `session_exists`, `limit_exceeded`.
        """
        m: Message = {"type": "spawn", "session_id": secrets.token_hex(6), "token": secrets.token_hex(16), **spec}
        return cast(SpawnedMessage, await self._ask(m, "spawned"))

    async def reopen(self, session_id: str, **changes: Unpack[ReopenSpec]) -> SpawnedMessage:
        """Start an exited or lost session again under its id. Errors: those of spawn, `session_not_found`, `session_running`."""
        m: Message = {"type": "reopen", "session_id": session_id, "token": secrets.token_hex(16), **changes}
        return cast(SpawnedMessage, await self._ask(m, "spawned"))

    async def kill(
        self,
        session_id: str,
        *,
        instance: Optional[str] = None,
        grace_ms: Optional[int] = None,
        soft_signal: Optional[str] = None,
        reason: Optional[str] = None,
        all: Optional[bool] = None,
    ) -> None:
        """Schedule the end of a session; `wait` waits for it.

        `grace_ms` is the time between the soft signal (default SIGHUP) and SIGKILL, default 250. `all` ends also processes
        that have left the terminal; without a control group the error is `unsupported`. If the session does not have
        `instance`, because it was started again, it continues, and the error is `instance_mismatch`.
        """
        await self._ok({
            "type": "terminate", "session_id": session_id, "instance": instance, "grace_ms": grace_ms, "soft_signal": soft_signal, "reason": reason, "all": all,
        })

    async def limit(self, session_id: str, limits: Limits) -> SessionInfo:
        """Change limits of a running session. Errors: `unsupported` if the session has no control group."""
        return cast(SessionInfo, member(await self._ask({"type": "limit", "session_id": session_id, "limits": limits}, "session"), "session"))

    async def freeze(self, session_id: str) -> None:
        """Stop all processes of a session. Errors: `unsupported` if the session has no control group."""
        await self._ok({"type": "freeze", "session_id": session_id, "frozen": True})

    async def thaw(self, session_id: str) -> None:
        """Continue all processes of a frozen session."""
        await self._ok({"type": "freeze", "session_id": session_id, "frozen": False})

    async def signal(self, session_id: str, name: Union[str, int]) -> None:
        """Send a signal, such as `SIGUSR1`, `USR1` or a number, to the process groups of a session."""
        await self._ok({"type": "signal", "session_id": session_id, "signal": str(name)})

    async def rename(self, session_id: str, title: str) -> SessionInfo:
        """Set the title of a session, its label `title`, for all viewers; "" removes the label."""
        return cast(SessionInfo, member(await self._ask({"type": "rename", "session_id": session_id, "title": title}, "session"), "session"))

    async def interrupt(self, session_id: str) -> None:
        """Send SIGINT to the foreground process group."""
        await self._ok({"type": "interrupt", "session_id": session_id})

    async def forget(self, session_id: str) -> None:
        """Delete an exited or lost session, and what is stored of it."""
        await self._ok({"type": "forget", "session_id": session_id})

    async def wait(self, session_id: str, *, timeout_ms: Optional[int] = None) -> ExitRecord:
        """Wait for the end of a session, and return its exit record. Errors: `timeout`."""
        return cast(ExitRecord, member(await self._long({"type": "wait", "session_id": session_id}, "waited", timeout_ms), "exit"))

    async def screen(self, session_id: str, **spec: Unpack[ScreenSpec]) -> ScreenContentMessage:
        """Return a session's screen, also after the session has ended. `at` names an earlier moment. Errors: `not_stored`."""
        return cast(ScreenContentMessage, await self._ask({"type": "screen", "session_id": session_id, **spec}, "screen_content"))

    async def history(self, session_id: str, **spec: Unpack[HistorySpec]) -> HistoryContentMessage:
        """Return lines, the newest first. For older lines, pass the number of the last line as `before`."""
        return cast(HistoryContentMessage, await self._ask({"type": "history", "session_id": session_id, **spec}, "history_content"))

    async def changes(self, session_id: str, **spec: Unpack[ChangesSpec]) -> ChangesContentMessage:
        """Return what has changed since the `mark` of the last reply, or the whole screen. Errors: `instance_mismatch`."""
        return cast(ChangesContentMessage, await self._ask({"type": "changes", "session_id": session_id, **spec}, "changes_content"))

    async def commands(self, session_id: str) -> CommandsContentMessage:
        """Return the last commands that have ended, the oldest first."""
        return cast(CommandsContentMessage, await self._ask({"type": "commands", "session_id": session_id}, "commands_content"))

    async def search(self, session_id: str, **spec: Unpack[SearchSpec]) -> SearchContentMessage:
        """Return the lines that match `pattern`. If the result has `more`, pass its `before` for older lines."""
        return cast(SearchContentMessage, await self._ask({"type": "search", "session_id": session_id, **spec}, "search_content"))

    async def past(self, session_id: str, **spec: Unpack[PastSpec]) -> PastContentMessage:
        """Describe what is kept of a session's past: the range of offsets, times, gaps and commands."""
        return cast(PastContentMessage, await self._ask({"type": "past", "session_id": session_id, **spec}, "past_content"))

    async def scrollback(self, session_id: str, offset: int = 0) -> PastOutput:
        """Return at most 512 KiB of output from an offset on, as far as the session's memory has it."""
        return await self._output({"type": "scrollback", "session_id": session_id, "offset": offset})

    async def read_past(self, session_id: str, offset: int = 0) -> PastOutput:
        """Return at most 512 KiB of output from an offset on, as far as the store on disk or the memory has it.

        It ends where output is missing, and begins behind it if it is missing at the offset.
        """
        return await self._output({"type": "scrollback", "session_id": session_id, "offset": offset, "past": True})

    async def _output(self, m: Message) -> PastOutput:
        a = await self._ask(m, "scrollback_data")
        return PastOutput(text(a, "instance"), integer(a, "offset"), integer(a, "end"), data(a, "data_b64"), a.get("times") or [], a.get("sizes") or [])

    async def search_past(self, session_id: str, **spec: Unpack[SearchPastSpec]) -> SearchPastContentMessage:
        """Return the lines of the whole past that match, the newest first. If the result has `more`, pass its `before`."""
        return cast(SearchPastContentMessage, await self._ask({"type": "search_past", "session_id": session_id, **spec}, "search_past_content"))

    async def resize(self, session_id: str, cols: int, rows: int) -> None:
        """Change a session's size once, with any size policy."""
        await self._ok({"type": "resize", "session_id": session_id, "cols": cols, "rows": rows})

    async def clear(self, session_id: str, *, screen: bool = False) -> None:
        """Delete the lines above a session's screen, for all viewers; with `screen` also those on it but the cursor's."""
        await self._ok({"type": "clear", "session_id": session_id, "screen": screen})

    async def set_size_policy(self, session_id: str, policy: str, cols: int = 0, rows: int = 0) -> None:
        """Set the policy that determines a session's size. The policy `fixed` may have columns and rows."""
        await self._ok({"type": "size_policy", "session_id": session_id, "policy": policy, "cols": cols, "rows": rows})

    async def input(self, session_id: str, data: Union[str, bytes]) -> None:
        """Send input without an attachment, exactly once, and return when all of it was accepted.

        Errors: `line_too_long` if the terminal cuts a line; all of the input was accepted then, too. `invalid_argument`
        if a text is not UTF-8.
        """
        raw = utf8(data) if isinstance(data, str) else data

        def part(start: int, end: int) -> Message:
            return {"type": "input", "session_id": session_id, "data_b64": base64.b64encode(raw[start:end]).decode()}

        await self._input(len(raw), INPUT_BYTES, part)

    async def paste(self, session_id: str, text: str) -> None:
        """Send text as a paste, framed if the program has enabled that. The session accepts all of it or nothing."""
        raw = utf8(text)
        m = {"type": "input", "session_id": session_id, "data_b64": base64.b64encode(raw).decode(), "paste": True}
        await self._input(len(raw), max(len(raw), 1), lambda start, end: m)

    async def keys(self, session_id: str, keys: Iterable[str]) -> None:
        """Send keys by their names (protocol/SPEC.md, Keys): `Enter`, `C-c`, `S-Tab`, `x`.

        Errors: `invalid_argument` if the keys are one text, because its letters would be typed.
        """
        if isinstance(keys, str):
            raise HoldfastError("invalid_argument", f"keys must be a list of names, such as [{keys!r}], but it is a text")
        names = list(keys)

        def part(start: int, end: int) -> Message:
            return {"type": "input", "session_id": session_id, "data_b64": "", "keys": names[start:end]}

        await self._input(len(names), MAX_KEYS, part)

    async def _input(self, length: int, at_once: int, part: Callable[[int, int], Message]) -> None:
        """Send input in parts, each of them once, because the writer's offset tells which input was accepted before.

        A part with keys or a paste is accepted as a whole or not at all.
        """
        writer = secrets.token_hex(8)
        warned: Optional[HoldfastError] = None
        offset = 0
        while offset < length:
            end = min(length, offset + at_once)
            m = part(offset, end)
            is_whole = "keys" in m or "paste" in m
            try:
                accepted = await self._ask({**m, "writer": writer, "offset": offset}, "accepted")
                offset = end if is_whole else _accepted_to(integer(accepted, "offset"), offset, end)
                continue
            except HoldfastError as err:
                if err.code == "line_too_long":
                    warned = warned or err
                    offset = end if is_whole or err.offset is None else _accepted_to(err.offset, offset, end)
                    continue
                if self._state == "closed" or err.code != "input_full" and not err.is_lost:
                    raise
                if err.code == "input_full" and not is_whole and err.offset is not None:
                    offset = err.offset
            await asyncio.sleep(RETRY_S)  # until the child has read some input
        if warned is not None:
            raise warned

    async def mark(self, session_id: str) -> MarkedMessage:
        """Return the present position of a session, for `since` of await_."""
        return cast(MarkedMessage, await self._ask({"type": "mark", "session_id": session_id}, "marked"))

    async def await_(self, session_id: str, **spec: Unpack[AwaitSpec]) -> AwaitedMessage:
        """Wait for one of `text` (RE2), `prompt` and `idle_ms` on a session's screen. Errors: `timeout`.

        For a text without `since`, take an inclusive mark first, in order to miss no line if the connection is lost.
        """
        timeout_ms = spec.get("timeout_ms")
        if spec.get("text") and not spec.get("since"):
            begun = time.monotonic()
            with contextlib.suppress(HoldfastError):  # the await has the same reason to fail
                mark = await self.mark(session_id)
                if "inclusive" in mark:  # older supervisors have none
                    spec["since"] = mark["inclusive"]
            if timeout_ms is not None:
                timeout_ms = max(0, timeout_ms - int((time.monotonic() - begun) * 1000))
        return cast(AwaitedMessage, await self._long({"type": "await", "session_id": session_id, **spec}, "awaited", timeout_ms))

    async def away(self, session_id: str) -> AwayContentMessage:
        """Return the events since the last viewer left."""
        return cast(AwayContentMessage, await self._ask({"type": "away", "session_id": session_id}, "away_content"))

    async def environment(self, session_id: str) -> List[str]:
        """Return the environment of the viewer that last sent one, as `K=V`."""
        a = await self._ask({"type": "environment", "session_id": session_id}, "environment_content")
        return cast(List[str], a.get("env") or [])

    async def share(self, session_id: str, *, ttl_ms: Optional[int] = None) -> SharedMessage:
        """Return a link with which a browser can view this session and do nothing else."""
        return cast(SharedMessage, await self._ask({"type": "share", "session_id": session_id, "ttl_ms": ttl_ms}, "shared"))

    async def status(self) -> StatusReportMessage:
        """Return the status of the proxy and of the supervisor."""
        return cast(StatusReportMessage, await self._ask({"type": "status"}, "status_report"))

    async def ticket(self, session_id: Optional[str] = None) -> TicketIssuedMessage:
        """Return a ticket for one WebSocket over TCP: for the raw output of a session, or for the api."""
        return cast(TicketIssuedMessage, await self._ask({"type": "ticket", "session_id": session_id}, "ticket_issued"))

    def subscribe(self, *, after: Optional[Tuple[str, int]] = None) -> Subscription:
        """Return the events of all sessions from now on.

        `after` is the supervisor's instance of `status` and the `seq` of an earlier event, after which it begins. If some
        later events are no longer kept, or the supervisor has another instance, the first event is `missed`.
        """
        if self._state == "closed":
            raise self._last or closed()
        subscription = Subscription(self._dialer, after, self._subscriptions.discard)
        self._subscriptions.add(subscription)
        return subscription

    async def attach(self, session_id: str, **spec: Unpack[AttachSpec]) -> Attachment:
        """Attach to a session. Without fields, the mode is shared and the session's size does not change.

        With `resume` and `writer` the attachment continues an earlier one. Errors: `session_not_found`, `session_exited`
        with `exit`, `already_attached`, `instance_mismatch`, `limit_exceeded`.
        """
        if self._state == "closed":
            raise self._last or closed()
        attachment = Attachment(self._dialer, session_id, spec, self._attachments.discard)
        self._attachments.add(attachment)
        await attachment._open()
        return attachment


def may_repeat(m: Message) -> bool:
    """Report whether a request may be made again if its reply was lost."""
    repeatable = REPEATABLE[m["type"]]
    return repeatable in ("read", "set") or bool(m.get(repeatable))


def _reply_to(m: Message, parts: List[Message], wanted: str) -> Message:
    """Return the reply to a request, which must have the given type."""
    if parts[0]["type"] != wanted:
        raise HoldfastError("decode", f"{m['type']} answered by {parts[0]['type']}")
    return parts[0]


def _accepted_to(offset: int, start: int, end: int) -> int:
    """Return the offset up to which the proxy has accepted input.

    It must have accepted some of the input, because otherwise the client would send it without an end, and not more
    than there is.
    """
    if not start < offset <= end:
        raise HoldfastError("decode", f"input from {start} to {end} answered by accepted {offset}")
    return offset
