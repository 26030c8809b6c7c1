"""Tests with a proxy that does what no real one does on demand."""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
from typing import Any, Awaitable, Callable, Dict, List, Optional, Tuple

import pytest

from holdfast import Holdfast, HoldfastError, Redial, Resized, StateChanged, connection, frames
from holdfast.connection import Connection

LIMIT_S = 30.0  # long, because the machine may be busy; a test that passes does not wait for it

Handler = Callable[[Dict[str, Any], asyncio.StreamWriter], None]


def send(writer: asyncio.StreamWriter, **m: Any) -> None:
    writer.write(frames.frame(frames.CONTROL, json.dumps(m).encode()))


class Fake:
    """A proxy that accepts each hello, and passes the other messages of a connection to a function of the test."""

    def __init__(self) -> None:
        self.greeting = b""  # is sent before all frames
        self.is_down = False  # it closes each connection at once
        self.stops = False  # it reads no further message
        self.silent = ""  # messages of this type are not answered
        self.heard = asyncio.Event()  # a message of this type has arrived
        self.welcomes = 0
        self.handler: Handler = lambda m, writer: None
        self.input: Callable[[int, bytes, asyncio.StreamWriter], None] = lambda offset, data, writer: None
        self.writers: List[asyncio.StreamWriter] = []
        self.severed: List[asyncio.StreamWriter] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writers.append(writer)
        if self.is_down:
            return writer.close()
        writer.write(self.greeting)
        try:
            while True:
                (length,) = frames.LENGTH.unpack(await reader.readexactly(frames.LENGTH.size))
                if self.stops:
                    return
                body = await reader.readexactly(length)
                if writer in self.severed:
                    continue
                if body[0] == frames.INPUT:
                    _, offset, data = frames.parse_data(body[1:])
                    self.input(offset, data, writer)
                    continue
                m = json.loads(body[1:])
                if m["type"] == self.silent:
                    self.heard.set()
                    continue
                if m["type"] == "hello":
                    self.welcomes += 1
                    send(writer, type="welcome", protocol={"min": 1, "max": 1}, agreed=1)
                self.handler(m, writer)
        except (asyncio.IncompleteReadError, OSError):
            writer.close()

    def sever(self) -> None:
        """Lose everything that arrives on the present connections, without notice."""
        self.severed = list(self.writers)

    def close_all(self) -> None:
        for writer in self.writers:
            writer.close()


def run(test: Callable[[Fake, str], Awaitable[None]]) -> Callable[[], None]:
    """Make a coroutine a test that must end in time. It receives a fake proxy and the path of its socket."""

    async def use() -> None:
        with tempfile.TemporaryDirectory() as dir:
            fake, path = Fake(), os.path.join(dir, "s")
            server = await asyncio.start_unix_server(fake.serve, path)
            try:
                await asyncio.wait_for(test(fake, path), LIMIT_S)
            finally:
                server.close()
                fake.close_all()

    def wrapper() -> None:
        asyncio.run(use())

    wrapper.__doc__ = test.__doc__
    return wrapper


@run
async def test_dial(fake: Fake, path: str) -> None:
    """An exception of a function `dial` that is no OSError fails one attempt, and the next one is made."""
    fake.greeting = b"hello\n"
    failures = 0

    def handle(m: Dict[str, Any], writer: asyncio.StreamWriter) -> None:
        if m["type"] == "events":
            send(writer, type="subscribed", instance="i", seq=0)
        elif m["type"] == "list":
            send(writer, type="sessions", request_id=m["request_id"], sessions=[])

    fake.handler = handle

    async def dial() -> Tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        nonlocal failures
        reader, writer = await asyncio.open_unix_connection(path)
        try:
            await reader.readuntil(b"\n")
        except EOFError:
            failures += 1
            if failures == 8:  # of the client and of the subscription
                fake.is_down = False
            raise
        return reader, writer

    async with await Holdfast.connect(dial=dial, redial=Redial(min=0.001, max=0.001)) as client:
        subscription = client.subscribe()
        await subscription.ready()
        fake.is_down = True
        fake.close_all()
        while fake.is_down:
            await asyncio.sleep(0.001)
        assert await client.list() == []
        while len(fake.writers) < 4 + failures:  # the subscription has connected again, too
            await asyncio.sleep(0.001)
    fake.is_down = True
    with pytest.raises(HoldfastError) as err:
        await Holdfast.connect(dial=dial)
    assert err.value.code == "connect"


@run
async def test_endless_dial(fake: Fake, path: str) -> None:
    """A function `dial` that does not return is given up, and the next attempt is made. A connection that it makes later is closed."""
    hangs = False
    late: List[asyncio.StreamWriter] = []

    def handle(m: Dict[str, Any], writer: asyncio.StreamWriter) -> None:
        if m["type"] == "list":
            send(writer, type="sessions", request_id=m["request_id"], sessions=[])

    async def dial() -> Tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        nonlocal hangs
        reader, writer = await asyncio.open_unix_connection(path)
        if hangs:
            hangs = False
            try:
                await asyncio.sleep(LIMIT_S)
            except asyncio.CancelledError:
                late.append(writer)
        return reader, writer

    fake.handler = handle
    limit, connection.DIAL_S = connection.DIAL_S, 0.1
    try:
        async with await Holdfast.connect(dial=dial, redial=Redial(min=0.001, give_up=2)) as client:
            hangs = True
            fake.close_all()
            assert await client.list() == []
            await late[0].wait_closed()
            hangs = True
            fake.close_all()
            while hangs:
                await asyncio.sleep(0.001)
    finally:
        connection.DIAL_S = limit
    await late[1].wait_closed()


@run
async def test_malformed_reply(fake: Fake, path: str) -> None:
    """A request whose reply is malformed is not made again, because the next reply would be malformed, too."""
    asked = 0

    def handle(m: Dict[str, Any], writer: asyncio.StreamWriter) -> None:
        nonlocal asked
        if m["type"] == "info":
            asked += 1
            writer.write(b"\xff\xff\xff\xff\0")  # a frame above the limit
        elif m["type"] == "list":
            send(writer, type="sessions", request_id=m["request_id"], sessions=[])

    fake.handler = handle
    async with await Holdfast.connect(path) as client:
        with pytest.raises(HoldfastError) as err:
            await client.info("s")
        assert (err.value.code, asked) == ("decode", 1)
        assert await client.list() == []


@run
async def test_storm(fake: Fake, path: str) -> None:
    """A proxy that closes each connection after the hello is asked ever more rarely."""
    loop = asyncio.get_running_loop()
    times: List[float] = []
    enough = asyncio.Event()

    def handle(m: Dict[str, Any], writer: asyncio.StreamWriter) -> None:
        times.append(loop.time())
        writer.close()
        if len(times) == 5:
            enough.set()

    fake.handler = handle
    async with await Holdfast.connect(path, redial=Redial(min=0.01, max=10)):
        await enough.wait()
    assert times[-1] - times[0] > 0.14, "waits of 10, 20, 40 and 80 ms"


@run
async def test_input_text(fake: Fake, path: str) -> None:
    """Input that is not UTF-8 is refused as any other text."""

    def handle(m: Dict[str, Any], writer: asyncio.StreamWriter) -> None:
        if m["type"] == "attach":
            session = {"id": "s", "instance": "i", "size": {"cols": 80, "rows": 24}}
            send(writer, type="attached", attachment=1, session=session, replay="exact", offset=0, input_offset=0)
        elif m["type"] == "detach":
            send(writer, type="detached", attachment=1)

    fake.handler = handle
    async with await Holdfast.connect(path) as client:
        attachment = await client.attach("s")
        for refused in (client.input("s", "a\udcff"), client.paste("s", "a\udcff"), attachment.write("a\udcff")):
            with pytest.raises(HoldfastError) as err:
                await refused
            assert err.value.code == "invalid_argument"


def attached(writer: asyncio.StreamWriter) -> None:
    session = {"id": "s", "instance": "i", "size": {"cols": 80, "rows": 24}}
    send(writer, type="attached", attachment=1, session=session, replay="exact", offset=0, input_offset=0)


@run
async def test_supervisor_died(fake: Fake, path: str) -> None:
    """A request during which a supervisor has died is not made again, because the supervisor may have died of it."""
    asked = 0

    def handle(m: Dict[str, Any], writer: asyncio.StreamWriter) -> None:
        nonlocal asked
        if m["type"] == "hello":
            return
        asked += 1
        if asked == 1:
            send(writer, type="error", request_id=m.get("request_id"), code="supervisor_unreachable", message="it died")
        elif m["type"] == "attach":
            attached(writer)
        else:
            send(writer, type="accepted" if m["type"] == "input" else "awaited", request_id=m["request_id"], offset=1)

    fake.handler = handle
    async with await Holdfast.connect(path, redial=Redial(min=0.001)) as client:
        requests: List[Callable[[], Awaitable[Any]]] = [
            lambda: client.input("s", "x"), lambda: client.await_("s", prompt=True, timeout_ms=100), lambda: client.attach("s"),
        ]
        for request in requests:
            asked = 0
            with pytest.raises(HoldfastError) as err:
                await request()
            assert (err.value.code, asked) == ("supervisor_unreachable", 1)


@run
async def test_input_without_progress(fake: Fake, path: str) -> None:
    """Input fails if a proxy answers that it has accepted none of it, or more than there is."""
    asked: List[Dict[str, Any]] = []
    answer: Dict[str, Any] = {}

    def handle(m: Dict[str, Any], writer: asyncio.StreamWriter) -> None:
        if m["type"] == "input":
            asked.append(m)
            send(writer, **(answer if len(asked) == 1 else {"type": "error", "code": "busy"}), request_id=m["request_id"])

    fake.handler = handle
    async with await Holdfast.connect(path) as client:
        for offset in (0, 4):
            for answer in ({"type": "accepted", "offset": offset}, {"type": "error", "code": "line_too_long", "offset": offset}):
                asked.clear()
                with pytest.raises(HoldfastError) as err:
                    await client.input("s", "abc")
                assert err.value.code == "decode"


@run
async def test_invalid_appearance(fake: Fake, path: str) -> None:
    """An appearance that the proxy would refuse is refused, and does not end the attachment."""

    def handle(m: Dict[str, Any], writer: asyncio.StreamWriter) -> None:
        if m["type"] == "attach":
            attached(writer)
        elif m["type"] == "appearance":
            send(writer, type="error", code="invalid_argument", message="a colour must be #rrggbb")
        elif m["type"] == "detach":
            send(writer, type="detached", attachment=1)

    fake.handler = handle
    fake.input = lambda offset, data, writer: send(writer, type="accepted", attachment=1, offset=offset + len(data))
    async with await Holdfast.connect(path) as client:
        attachment = await client.attach("s")
        looks: List[Any] = [{"background": "#fff"}, {"cell_width": 8.5}, {"cell_height": 2000}]
        for refused in looks:
            with pytest.raises(HoldfastError) as err:
                attachment.set_appearance(**refused)
            assert err.value.code == "invalid_argument"
        sizes: List[Any] = [(-5, -5), (80.5, 24), (80, "24")]
        for cols, rows in sizes:
            with pytest.raises(HoldfastError) as err:
                attachment.resize(cols, rows)
            assert err.value.code == "invalid_argument"
        await attachment.write("x")
        await attachment.flush()


@run
async def test_await_again(fake: Fake, path: str) -> None:
    """An await for a text has the inclusive mark of its beginning, also after a lost connection."""
    asked: List[Any] = []
    marks = 0

    def handle(m: Dict[str, Any], writer: asyncio.StreamWriter) -> None:
        nonlocal marks
        if m["type"] == "mark":
            marks += 1
            send(writer, type="marked", request_id=m["request_id"], instance="i", offset=5, mark="AA==", inclusive=str(marks))
        elif m["type"] == "await":
            asked.append((m.get("since"), m.get("timeout_ms") is not None))
            if len(asked) == 1:
                return writer.close()
            send(writer, type="awaited", request_id=m["request_id"], instance="i", offset=6, line="x")

    fake.handler = handle
    async with await Holdfast.connect(path, redial=Redial(min=0.001)) as client:
        assert (await client.await_("s", text="x", timeout_ms=60000)).get("line") == "x"
        await client.await_("s", text="x", since="own")
        await client.await_("s", prompt=True)
    assert asked == [("1", True), ("1", True), ("own", False), (None, False)]


@run
async def test_silence(fake: Fake, path: str) -> None:
    """A request that is not answered in time fails, and is not made again. The next one uses another connection."""
    asked: List[str] = []

    def handle(m: Dict[str, Any], writer: asyncio.StreamWriter) -> None:
        asked.append(m["type"])
        if m["type"] == "list":
            send(writer, type="sessions", request_id=m["request_id"], sessions=[])

    fake.handler = handle
    async with await Holdfast.connect(path, redial=Redial(min=0.001, answer=0.1)) as client:
        for request, retryable in ((client.info("s"), True), (client.signal("s", "INT"), False), (client.spawn(early_exit_ms=20), True)):
            with pytest.raises(HoldfastError) as err:
                await request
            assert (err.value.code, err.value.retryable) == ("timeout", retryable)
        longs: List[Callable[[], Awaitable[Any]]] = [lambda: client.wait("s", timeout_ms=10), lambda: client.await_("s", prompt=True, timeout_ms=10)]
        for long in longs:
            while client.state != "connected":  # the time of the request begins before it has a connection
                await asyncio.sleep(0.001)
            with pytest.raises(HoldfastError) as err:
                await long()
            assert err.value.code == "timeout"
        with pytest.raises(HoldfastError) as err:
            await client.attach("s")
        assert err.value.code == "timeout"
        assert [kind for kind in asked if kind != "hello"] == ["info", "signal", "spawn", "wait", "await", "attach"]
        assert await client.list() == []
        assert fake.welcomes == 7, "each of the six connections was silent"


@run
async def test_busy(fake: Fake, path: str) -> None:
    """If only one request is not answered, the connection and the other requests on it continue. A wait may have no limit."""

    def handle(m: Dict[str, Any], writer: asyncio.StreamWriter) -> None:
        if m["type"] == "list":
            send(writer, type="sessions", request_id=m["request_id"], sessions=[])

    fake.handler = handle
    async with await Holdfast.connect(path, redial=Redial(answer=0.2)) as client:
        waits = asyncio.ensure_future(client.wait("s"))
        slow = asyncio.ensure_future(client.info("s"))
        while not slow.done():
            await client.list()
            await asyncio.sleep(0.01)
        with pytest.raises(HoldfastError) as err:
            await slow
        assert (err.value.code, waits.done(), fake.welcomes) == ("timeout", False, 1)


@run
async def test_silent_receiver(fake: Fake, path: str) -> None:
    """A request that the proxy does not read fails in time as well."""
    client = await Holdfast.connect(path, redial=Redial(answer=0.1))
    async with client:
        fake.stops = True
        with pytest.raises(HoldfastError) as err:
            await client.paste("s", "x" * 700000)
        assert err.value.code == "timeout"


@run
async def test_endless_output(fake: Fake, path: str) -> None:
    """A silent connection over the input and output of a process is replaced, also if the output does not end."""
    copies: List[asyncio.Task[None]] = []

    async def copy(source: asyncio.StreamReader, output: asyncio.StreamReader) -> None:
        while piece := await source.read(4096):
            output.feed_data(piece)

    async def dial() -> Tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_unix_connection(path)
        output = asyncio.StreamReader()
        copies.append(asyncio.create_task(copy(reader, output)))
        return output, writer

    def handle(m: Dict[str, Any], writer: asyncio.StreamWriter) -> None:
        if m["type"] == "list":
            send(writer, type="sessions", request_id=m["request_id"], sessions=[])

    fake.handler = handle
    async with await Holdfast.connect(dial=dial, redial=Redial(min=0.001, give_up=1, answer=0.1)) as client:
        with pytest.raises(HoldfastError) as err:
            await client.info("s")
        assert err.value.code == "timeout"
        assert await client.list() == []
    await asyncio.wait(copies)


@run
async def test_silent_attachment(fake: Fake, path: str) -> None:
    """If a resumed attachment or a subscription is not answered, it tries another connection."""
    asked = {"attach": 0, "events": 0}

    def handle(m: Dict[str, Any], writer: asyncio.StreamWriter) -> None:
        if m["type"] not in asked:
            return
        asked[m["type"]] += 1
        if asked[m["type"]] == 2:
            return
        if m["type"] == "attach":
            attached(writer)
        else:
            send(writer, type="subscribed", instance="i", seq=0)

    fake.handler = handle
    async with await Holdfast.connect(path, redial=Redial(min=0.001, answer=0.1)) as client:
        attachment, subscription = await client.attach("s"), client.subscribe()
        await subscription.ready()
        fake.close_all()
        while asked != {"attach": 3, "events": 3}:
            await asyncio.sleep(0.001)
        assert [(await attachment.__anext__()) for _ in range(2)] == [StateChanged("reconnecting"), StateChanged("connected")]


@run
async def test_close_ends_attach(fake: Fake, path: str) -> None:
    """If the client is closed while an attach is under way, the attach fails."""
    for silent in ("hello", "attach"):
        fake.silent = ""
        client = await Holdfast.connect(path)
        fake.silent = silent
        fake.heard.clear()
        attaching = asyncio.ensure_future(client.attach("s"))
        await fake.heard.wait()
        await client.close()
        with pytest.raises(HoldfastError) as err:
            await attaching
        assert err.value.code == "client_closed"


@run
async def test_malformed_error(fake: Fake, path: str) -> None:
    """An error whose optional fields have another type ends a subscription, and not only its task."""

    def handle(m: Dict[str, Any], writer: asyncio.StreamWriter) -> None:
        if m["type"] == "events":
            send(writer, type="error", code="busy", message="", retryable=True, retry_after_ms="soon")
        elif m["type"] == "info":
            send(writer, type="error", request_id=m["request_id"], code="session_exited", message="", exit=7, offset="x")

    fake.handler = handle
    async with await Holdfast.connect(path) as client:
        with pytest.raises(HoldfastError) as err:
            await client.subscribe().ready()
        assert err.value.code == "decode"
        with pytest.raises(HoldfastError) as err:
            await client.info("s")
        assert err.value.code == "decode"


@run
async def test_close_meets_welcome(fake: Fake, path: str) -> None:
    """close ends the client and its subscriptions also if the welcome of the next connection has just arrived."""
    client = await Holdfast.connect(path, redial=Redial(min=0.001))
    subscription = client.subscribe()
    hello = Connection.hello
    closing: List[asyncio.Future[None]] = []

    async def welcomed(self: Connection, name: str, token: Optional[str], secret: Optional[str]) -> None:
        await hello(self, name, token, secret)
        if not subscription._is_over:
            asyncio.get_running_loop().call_soon(subscription.close)
        elif not closing:
            closing.append(asyncio.ensure_future(client.close()))

    setattr(Connection, "hello", welcomed)
    try:
        await asyncio.wait([subscription._task])
        fake.close_all()
        while not closing:
            await asyncio.sleep(0)
        await closing[0]
    finally:
        setattr(Connection, "hello", hello)
    assert client.state == "closed"


@run
async def test_close_at_once(fake: Fake, path: str) -> None:
    """close ends the connection, also of a client that is closed in the turn in which it was connected."""
    client = await Holdfast.connect(path)
    conn = client._conn
    assert conn is not None
    await client.close()
    assert conn._writer.transport.is_closing()


@run
async def test_detach_twice(fake: Fake, path: str) -> None:
    """close waits for a detach that is under way."""
    detaching = asyncio.Event()
    held: List[asyncio.StreamWriter] = []

    def handle(m: Dict[str, Any], writer: asyncio.StreamWriter) -> None:
        if m["type"] == "attach":
            attached(writer)
        elif m["type"] == "detach":
            held.append(writer)
            detaching.set()

    fake.handler = handle
    client = await Holdfast.connect(path)
    attachment = await client.attach("s")
    first = asyncio.ensure_future(attachment.detach())
    await detaching.wait()
    second = asyncio.ensure_future(client.close())
    done, _ = await asyncio.wait([second], timeout=0.1)
    assert not done and len(held) == 1
    send(held[0], type="detached", attachment=1)
    await asyncio.gather(first, second)


@run
async def test_flush_of_accepted_input(fake: Fake, path: str) -> None:
    """flush succeeds if all input was accepted, also if the session has ended by it. If some was not, the end is the error."""
    accepts = True

    def handle(m: Dict[str, Any], writer: asyncio.StreamWriter) -> None:
        if m["type"] == "attach":
            attached(writer)

    def take(offset: int, data: bytes, writer: asyncio.StreamWriter) -> None:
        if accepts:
            send(writer, type="accepted", attachment=1, offset=offset + len(data))
        send(writer, type="pty_exited", session_id="s", attachment=1, exit_code=0)

    fake.handler, fake.input = handle, take
    async with await Holdfast.connect(path) as client:
        attachment = await client.attach("s")
        await attachment.write("exit\n")
        async for _ in attachment:
            pass
        await attachment.flush()
        with pytest.raises(HoldfastError) as err:
            await attachment.write("late")
        assert err.value.code == "session_exited"
        await attachment.detach()
        await attachment.flush()

        accepts = False
        attachment = await client.attach("s")
        await attachment.write("exit\n")
        with pytest.raises(HoldfastError) as err:
            await attachment.flush()
        assert err.value.code == "session_exited"


@run
async def test_size_is_sent_again(fake: Fake, path: str) -> None:
    """A size that the proxy has not confirmed when the connection is lost is sent again over the next one. A confirmed one is not."""
    received: List[Tuple[str, Any]] = []
    attaches = 0

    def handle(m: Dict[str, Any], writer: asyncio.StreamWriter) -> None:
        nonlocal attaches
        if m["type"] == "attach":
            attaches += 1
            attached(writer)
        elif m["type"] == "resize":
            received.append((m["type"], m["request_id"]))
            if attaches == 1:
                return writer.close()
            send(writer, type="ok", request_id=m["request_id"])
            send(writer, type="resized", attachment=1, cols=m["cols"], rows=m["rows"])
        elif m["type"] == "interrupt":
            received.append((m["type"], attaches))
            if attaches == 2:
                return writer.close()
            send(writer, type="pty_exited", session_id="s", attachment=1, exit_code=0)

    fake.handler = handle
    async with await Holdfast.connect(path, redial=Redial(min=0.001)) as client:
        attachment = await client.attach("s")
        attachment.resize(90, 30)
        async for event in attachment:
            if isinstance(event, Resized) and event.cols == 90 or isinstance(event, StateChanged) and event.state == "connected" and attaches == 3:
                attachment.interrupt()
            if len(received) == 4:
                break
    assert received == [("resize", "size-1"), ("resize", "size-2"), ("interrupt", 2), ("interrupt", 3)]


@run
async def test_exited_event(fake: Fake, path: str) -> None:
    """The event of an end has the time of the end, or none from an older proxy."""
    def handle(m: Dict[str, Any], writer: asyncio.StreamWriter) -> None:
        if m["type"] == "events":
            send(writer, type="subscribed", instance="i", seq=0)
            send(writer, type="pty_exited", session_id="s", seq=1, exit_code=0, exited_at="2026-09-01T12:00:00Z")
            send(writer, type="pty_exited", session_id="s", seq=2, exit_code=0)

    fake.handler = handle
    async with await Holdfast.connect(path) as client:
        events = client.subscribe()
        assert [((e := await events.__anext__()).event, e.seq, e.at) for _ in range(2)] == [("exited", 1, "2026-09-01T12:00:00Z"), ("exited", 2, "")]


@run
async def test_silent_connections(fake: Fake, path: str) -> None:
    """Attachments and subscriptions leave connections that were lost without notice: if input is not accepted, or if a request finds its own silent."""
    typed: List[Tuple[int, bytes]] = []

    def handle(m: Dict[str, Any], writer: asyncio.StreamWriter) -> None:
        if m["type"] == "attach":
            attached(writer)
        elif m["type"] == "events":
            send(writer, type="subscribed", instance="i", seq=0)

    def take(offset: int, data: bytes, writer: asyncio.StreamWriter) -> None:
        typed.append((offset, data))
        send(writer, type="accepted", attachment=1, offset=offset + len(data))

    fake.handler, fake.input = handle, take
    async with await Holdfast.connect(path, redial=Redial(min=0.001, answer=0.1)) as client:
        attachment, subscription = await client.attach("s"), client.subscribe()
        await subscription.ready()
        fake.sever()
        await attachment.write("typed")
        await attachment.flush()
        assert (typed, fake.welcomes) == ([(0, b"typed")], 4)
        fake.sever()
        with pytest.raises(HoldfastError) as err:
            await client.list()
        assert err.value.code == "timeout"
        while fake.welcomes < 7:  # one for each connection
            await asyncio.sleep(0.001)


@run
async def test_size_waits_for_room(fake: Fake, path: str) -> None:
    """A size for which there is no room, because the proxy does not read, is sent when the proxy reads again."""
    arrived = asyncio.Event()
    stuck: List[asyncio.StreamWriter] = []

    def handle(m: Dict[str, Any], writer: asyncio.StreamWriter) -> None:
        if m["type"] == "attach":
            attached(writer)
            writer.transport.pause_reading()  # type: ignore[attr-defined]
            stuck.append(writer)
        elif m["type"] == "resize":
            send(writer, type="ok", request_id=m["request_id"])
            if m["cols"] == 91:
                arrived.set()
        elif m["type"] == "detach":
            send(writer, type="detached", attachment=1)

    fake.handler = handle
    async with await Holdfast.connect(path) as client:
        attachment = await client.attach("s")
        attachment.resize(90, 30)
        conn = attachment._conn
        assert conn is not None
        while not conn.is_full:
            attachment.set_appearance(version="x" * 100_000)
        attachment.resize(91, 30)
        stuck[0].transport.resume_reading()  # type: ignore[attr-defined]
        await arrived.wait()


@run
async def test_keys_of_one_text(fake: Fake, path: str) -> None:
    """The name of a key instead of a list is refused, because its letters would be typed."""
    sent: List[str] = []
    fake.handler = lambda m, writer: sent.append(m["type"])
    async with await Holdfast.connect(path) as client:
        with pytest.raises(HoldfastError) as err:
            await client.keys("s", "Enter")
    assert (err.value.code, sent) == ("invalid_argument", ["hello"])


def test_empty_places() -> None:
    """An empty path or directory, as of a variable that is not set, is refused, because it would be another one than is meant."""
    for call in Holdfast.connect(""), Holdfast.start(dir=""):
        with pytest.raises(HoldfastError) as err:
            asyncio.run(call)
        assert err.value.code == "invalid_argument"
