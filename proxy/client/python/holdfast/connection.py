"""Connections to a proxy, and the attempts to make them."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import struct
import sys
import time
from dataclasses import dataclass
from typing import Awaitable, Callable, Optional, Tuple, Union, cast

from . import frames
from .errors import HoldfastError, as_error
from .message import Message, error_of, going_away, integer, member, parse, utf8
from .wire import WelcomeMessage

Streams = Tuple[asyncio.StreamReader, asyncio.StreamWriter]
#: Makes a stream to a proxy. It is called again after each lost connection. An exception fails the attempt with `connect`.
Dial = Callable[[], Awaitable[Streams]]

#: The lowest and highest version of the protocol that this client supports.
SPOKEN = {"min": 1, "max": 1}
HELLO_S = 5.0
CONNECT_S = 5.0
#: The longest time for a call of the function `dial`, which may ask the user for a password.
DIAL_S = 600.0
#: The longest time that a proxy can ask a client to wait before the next attempt.
MAX_RETRY_AFTER_S = 30.0
#: Bytes that may wait to be sent before this client sends no more input and no more sizes.
MAX_UNSENT = 2 << 20


@dataclass(frozen=True)
class Redial:
    """The times, in seconds, between attempts to replace a lost connection, and for the answer to a request."""

    #: The first wait. Each wait is twice the last.
    min: float = 0.02
    #: The longest wait.
    max: float = 2.0
    #: The time that a request waits for a connection. Attachments and subscriptions wait without a limit.
    give_up: float = 30.0
    #: The time that the proxy may take to answer a request. The time that the request itself names is added.
    answer: float = 30.0


class Connection:
    """A stream on which the proxy has accepted the hello."""

    welcome: WelcomeMessage
    #: The number of frames that all connections have received.
    received = 0

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._limit = frames.MAX_HELLO
        #: `received` when this connection received the last frame.
        self.heard = 0
        self._drains = asyncio.Lock()  # Python 3.9 permits one drain at a time

    async def hello(self, client: str, token: Optional[str], secret: Optional[str]) -> None:
        """Send the hello. Errors: the error that the proxy replies, `protocol_mismatch`, `lost`, `decode`."""
        m: Message = {"type": "hello", "protocol": SPOKEN, "client": client, "pid": os.getpid()}
        if token is not None:
            m["token"] = token
        if secret is not None:
            m["secret"] = secret
        self.send(m)
        while True:
            answer = await self.receive()
            if isinstance(answer, dict) and answer["type"] in ("welcome", "error", "goaway"):  # others are skipped
                break
        if answer["type"] == "error":
            raise error_of(answer)
        if answer["type"] == "goaway":
            raise going_away(answer)
        if not SPOKEN["min"] <= integer(answer, "agreed") <= SPOKEN["max"]:
            theirs = member(answer, "protocol")
            raise HoldfastError(
                "protocol_mismatch",
                f"the proxy speaks versions {theirs['min']} to {theirs['max']}, this client {SPOKEN['min']} to {SPOKEN['max']}",
            )
        self.welcome = cast(WelcomeMessage, answer)
        self._limit = frames.MAX_FRAME

    async def receive(self) -> Union[Message, Tuple[int, int, int, bytes]]:
        """Return the next message, or kind, attachment, offset and data of another frame. Unknown kinds are skipped.

        Errors: `lost`, `decode`.
        """
        while True:
            kind, payload = await self.read_frame()
            if kind == frames.CONTROL:
                return parse(payload)
            if kind in (frames.OUTPUT, frames.SNAPSHOT, frames.VIEW):
                return (kind, *frames.parse_data(payload))

    async def read_frame(self) -> Tuple[int, bytes]:
        """Return the kind and the payload of the next frame. Errors: `lost`, `decode`."""
        try:
            (length,) = frames.LENGTH.unpack(await self._reader.readexactly(frames.LENGTH.size))
            if not 1 <= length <= self._limit:
                raise HoldfastError("decode", f"a frame of {length} bytes")
            body = await self._reader.readexactly(length)
        except (OSError, asyncio.IncompleteReadError) as err:
            raise as_error(err) from err
        Connection.received += 1
        self.heard = Connection.received
        return body[0], body[1:]

    def send(self, m: Message) -> None:
        """Send a message. Fields that are None are left out.

        Errors: `frame_too_large`; `invalid_argument` if a text is not UTF-8, as a path of os.listdir may be. JSON would
        replace its bytes, and the command would act on another file.
        """
        text = json.dumps({k: v for k, v in m.items() if v is not None}, separators=(",", ":"), ensure_ascii=False)
        self._write(frames.frame(frames.CONTROL, utf8(text)))

    def send_input(self, attachment: int, offset: int, data: bytes) -> None:
        self._write(frames.data_frame(frames.INPUT, attachment, offset, data))

    def _write(self, frame: bytes) -> None:
        if not self._writer.transport.is_closing():  # otherwise receive is about to report the loss
            self._writer.write(frame)

    @property
    def is_full(self) -> bool:
        """So much waits to be sent that nothing should be added."""
        return self._writer.transport.get_write_buffer_size() >= MAX_UNSENT

    async def drain(self) -> None:
        """Wait until there is room for further messages. Errors: `lost`."""
        async with self._drains:
            try:
                await self._writer.drain()
            except OSError as err:
                raise as_error(err) from err

    def close(self) -> None:
        """Close the connection, after everything was sent that the proxy still reads."""
        self._writer.close()

    def expire(self, why: HoldfastError) -> None:
        """End the connection with an error, because an answer is late. What waits to be sent is discarded, because it may never be read.

        The reader receives the error itself, because it may be the output of a process, which does not end with the input.
        """
        self._reader.set_exception(why)
        self._writer.transport.abort()

    def expire_if_silent(self, since: int) -> bool:
        """End the connection if it has received nothing since `received` had a value. It may be lost without notice."""
        is_silent = self.heard <= since
        if is_silent:
            self.expire(HoldfastError("lost", "the connection was silent although an answer was due"))
        return is_silent


def unix_socket(path: str) -> Dial:
    """Return a function that connects to a Unix socket, and refuses one of another user."""

    async def dial() -> Tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        sock = socket.socket(socket.AF_UNIX)
        try:
            sock.setblocking(False)
            deadline = time.monotonic() + CONNECT_S
            while True:
                try:
                    sock.connect(path)
                    break
                except BlockingIOError:  # the listener's backlog is full, as in a long handoff
                    if time.monotonic() > deadline:
                        raise
                await asyncio.sleep(0.01)
            check_peer(sock, path)
            return await asyncio.open_unix_connection(sock=sock)
        except BaseException:
            sock.close()
            raise

    return dial


def check_peer(sock: socket.socket, path: str) -> None:
    """Raise `unauthorized` unless this user or root listens on the socket."""
    if sys.platform == "linux":
        _, uid, _ = struct.unpack("=iII", sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    elif sys.platform == "darwin":
        _, uid = struct.unpack_from("=II", sock.getsockopt(0, 1, 76))  # SOL_LOCAL, LOCAL_PEERCRED, struct xucred
    else:
        return
    if uid not in (os.geteuid(), 0):
        raise HoldfastError("unauthorized", f"{path} belongs to a process of uid {uid}, and this process has uid {os.geteuid()}")


def retry_after(err: HoldfastError) -> float:
    """Return the seconds that the proxy has asked to wait before the next attempt."""
    return min((err.retry_after_ms or 0) / 1000, MAX_RETRY_AFTER_S)


class Dialer:
    """Makes connections."""

    def __init__(self, dial: Dial, *, client: str, token: Optional[str], secret: Optional[str], redial: Redial) -> None:
        self._dial = dial
        self.client = client
        self._token = token
        self._secret = secret
        self.times = redial

    async def dial(self) -> Connection:
        """Make one attempt. Errors: `connect`, and those of the hello."""
        conn = Connection(*await self._streams())
        # Before Python 3.12, asyncio.wait_for loses a cancellation that comes with the result.
        timer = asyncio.get_running_loop().call_later(HELLO_S, conn.expire, HoldfastError("lost", f"no welcome within {HELLO_S} s"))
        try:
            await conn.hello(self.client, self._token, self._secret)
            return conn
        except Exception as err:
            conn.close()
            raise as_error(err) from err
        except BaseException:
            conn.close()
            raise
        finally:
            timer.cancel()

    async def _streams(self) -> Streams:
        """Call the function `dial`. Errors: `connect`, also if it does not return in time.

        It is a task of its own, because it may swallow a cancellation and return a connection nevertheless.
        """
        attempt = asyncio.ensure_future(self._dial())
        try:
            if await asyncio.wait([attempt], timeout=DIAL_S) == (set(), {attempt}):
                raise HoldfastError("connect", f"no connection within {DIAL_S:g} s")
        except BaseException:
            attempt.cancel()
            attempt.add_done_callback(_discard)
            raise
        try:
            return attempt.result()
        except HoldfastError:
            raise
        except Exception as err:  # the caller's function may raise others than OSError, such as EOFError
            raise HoldfastError("connect", str(err) or type(err).__name__) from err

    async def redial(self, give_up: Optional[float] = None) -> Connection:
        """Make attempts until there is a connection, for at most `give_up` seconds.

        An error that waiting cannot remedy is raised at once.
        """
        deadline = None if give_up is None else time.monotonic() + give_up
        wait = self.times.min
        while True:
            try:
                return await self.dial()
            except HoldfastError as err:
                pause = max(wait, retry_after(err))
                if not err.retryable or deadline is not None and time.monotonic() + pause > deadline:
                    raise
                await asyncio.sleep(pause)
            wait = min(2 * wait, self.times.max)


def _discard(attempt: asyncio.Future[Streams]) -> None:
    """Close the connection of an attempt that was given up, if it has made one."""
    if not attempt.cancelled() and attempt.exception() is None:
        attempt.result()[1].close()


class Room:
    """Counts what waits for a consumer. A producer waits while it is too much, until a quarter of the limit is left."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._used = 0
        self._free = asyncio.Event()
        self._free.set()

    def add(self, n: int) -> None:
        self._used += n
        if self._used >= self._limit:
            self._free.clear()

    def remove(self, n: int) -> None:
        self._used -= n
        if self._used <= self._limit // 4:
            self._free.set()

    @property
    def is_full(self) -> bool:
        return not self._free.is_set()

    def open(self) -> None:
        """Let the producer continue, because nothing more is stored."""
        self._limit = sys.maxsize
        self._free.set()

    async def wait(self) -> None:
        await self._free.wait()
