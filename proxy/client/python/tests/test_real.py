"""Tests with real proxies, supervisors and shells."""

from __future__ import annotations

import asyncio
import hashlib
import os
import signal
from typing import List

import pytest
from conftest import World, run

from holdfast import Attachment, Exit, Holdfast, HoldfastError, InputFull, Output, Redial, Resized, Resync, Snapshot, StateChanged, Stolen

ECHO = ["/bin/sh", "-c", "stty -echo; while read x; do echo got $x; done; exit 5"]


async def spawn(h: Holdfast, *argv: str) -> Attachment:
    """Start a session, and attach from its first byte on."""
    s = (await h.spawn(argv=list(argv), cols=80, rows=24))["session"]
    return await h.attach(s["id"], resume={"instance": s["instance"], "offset": 0})


async def read_until(a: Attachment, text: bytes) -> bytes:
    """Return the output up to a text. Every byte must arrive once and in order."""
    seen = bytearray()
    while text not in seen:
        e = await a.__anext__()
        assert not isinstance(e, Resync), e
        if isinstance(e, Output):
            assert e.offset + len(e.data) == a.offset
            seen += e.data
    return bytes(seen)


class Typist:
    """Types numbered lines, and compares the answers, while other things happen."""

    def __init__(self, a: Attachment) -> None:
        self.a, self.count, self.states = a, 0, list[str]()
        self.tasks = [asyncio.ensure_future(self.type()), asyncio.ensure_future(self.read())]
        self.answered = 0
        self.progress = asyncio.Event()

    async def type(self) -> None:
        while True:
            self.count += 1
            await self.a.write(f"{self.count}\n")
            while self.count - self.answered > 20:
                self.progress.clear()
                await self.progress.wait()

    async def read(self) -> None:
        rest, offset = b"", 0
        async for e in self.a:
            if isinstance(e, StateChanged):
                self.states.append(e.state)
            if isinstance(e, (StateChanged, Resized)):
                continue
            assert isinstance(e, Output) and e.offset == offset, e
            offset += len(e.data)
            *lines, rest = (rest + e.data).split(b"\r\n")
            for line in lines:
                self.answered += 1
                assert line == b"got %d" % self.answered
            self.progress.set()

    async def more(self) -> None:
        """Wait until 50 more lines were answered."""
        want = self.answered + 50
        while self.answered < want:
            self.progress.clear()
            waits = asyncio.ensure_future(self.progress.wait())
            done, _ = await asyncio.wait([*self.tasks, waits], return_when=asyncio.FIRST_COMPLETED)
            assert done == {waits}, [t.result() for t in done]

    async def end(self) -> None:
        self.tasks[0].cancel()
        await self.a.flush()
        self.tasks[1].cancel()
        await asyncio.wait(self.tasks)


@run
async def test_session(world: World) -> None:
    """A session's life, with the requests that read it."""
    async with await Holdfast.connect(client="test") as h:
        events = h.subscribe()
        await events.ready()
        async with await spawn(h, "/bin/sh", "-c", "echo hi; read x; echo got $x; exit 7") as a:
            session_id = a.session["id"]
            await read_until(a, b"hi\r\n")
            await h.set_size_policy(session_id, "fixed")
            await h.resize(session_id, 50, 12)
            mark = await h.mark(session_id)
            await h.keys(session_id, ["t", "h"])
            await h.paste(session_id, "ere")
            waits = asyncio.ensure_future(h.wait(session_id, timeout_ms=60000))
            await a.write("\n")
            found = await h.await_(session_id, text="got (.*)", since=mark["mark"], timeout_ms=60000)
            assert found["groups"] == ["got there", "there"]
            seen: List[object] = [e async for e in a]
            assert isinstance(seen[-1], Exit) and seen[-1].exit_code == 7 and Resized(50, 12) in seen
            with pytest.raises(HoldfastError) as ended:
                await a.write("x")
            assert ended.value.code == "session_exited"
        exit = await waits
        assert (exit["exit_code"], exit["last_lines"][-1]) == (7, "got there")
        screen = await h.screen(session_id)
        assert (screen.get("lines"), screen["cols"]) == (["hi", "there", "got there"], 50)
        assert [m["text"] for m in (await h.search(session_id, pattern=r"g.t (\w+)"))["matches"]] == ["got there"]
        assert (await h.scrollback(session_id, 4)).data == b"there\r\ngot there\r\n"
        assert [s.get("exit_code") for s in await h.list() if s["id"] == session_id] == [7]
        with pytest.raises(HoldfastError) as err:
            await h.attach(session_id)
        assert err.value.code == "session_exited" and err.value.exit and err.value.exit["exit_code"] == 7
        with pytest.raises(HoldfastError) as failed:
            await h.spawn(argv=["no-such-program"])
        assert (failed.value.code, failed.value.cause) == ("spawn_failed", "not_found")
        with pytest.raises(HoldfastError) as early:
            await h.spawn(argv=["/bin/sh", "-c", "exit 3"])
        assert early.value.code == "exited_early" and early.value.exit and early.value.exit["exit_code"] == 3
        await h.reopen(session_id, argv=["/bin/cat"])
        await h.kill(session_id, reason="enough")
        exit = await h.wait(session_id)
        assert (exit["signal"], exit["reason"]) == ("SIGHUP", "enough")
        await h.forget(session_id)
        with pytest.raises(HoldfastError) as gone:
            await h.info(session_id)
        assert gone.value.code == "session_not_found"
        kinds: List[str] = []
        async for event in events:
            of = event.session["id"] if event.session else event.exit["session_id"] if event.exit else ""
            if of == session_id and event.event in ("created", "exited", "forgotten"):
                kinds.append(event.event)
            if len(kinds) == 6:
                break
        assert kinds == ["created", "exited", "forgotten"] * 2
    with pytest.raises(HoldfastError) as closed:
        await h.list()
    assert closed.value.code == "client_closed"


@run
async def test_replacements(world: World) -> None:
    """A program types while its proxy is killed in the middle of output and handed over, and the supervisor is upgraded."""
    async with await Holdfast.connect(world.socket) as h:
        typist = Typist(await spawn(h, *ECHO))
        loud = await spawn(h, "/bin/sh", "-c", "stty -echo; read x; seq 60000; read x")
        waits = asyncio.ensure_future(h.wait(loud.session["id"], timeout_ms=60000))
        await typist.more()
        await world.run("proxy", "--handoff")
        await typist.more()
        assert typist.states == []  # the connection was passed on
        await loud.write("go\n")
        seen = await read_until(loud, b"\n")
        os.kill((await h.status())["proxy"]["pid"], signal.SIGKILL)
        await world.run("proxy", "start")
        seen += await read_until(loud, b"\n60000\r\n")
        assert seen == b"".join(b"%d\r\n" % n for n in range(1, 60001))
        await typist.more()
        assert typist.states == ["reconnecting", "connected"]
        was = (await h.status())["supervisor"]
        await world.run("proxy", "upgrade", programs=world.newer)
        await typist.more()
        now = (await h.status())["supervisor"]
        assert was and now and was["version"] != now["version"] and was["pid"] == now["pid"]
        await loud.write("\n")
        assert (await waits)["exit_code"] == 0
        await typist.end()
        a = typist.a
        exact = await h.attach(a.session["id"], resume=a.resume, writer=a.writer)
        await exact.write(b"\x04")
        assert [e.exit_code async for e in exact if isinstance(e, Exit)] == [5]
        assert [e async for e in a if isinstance(e, Stolen)]


@run
async def test_paste(world: World) -> None:
    """A large paste arrives once although the proxy dies, and the client stores a part of it at a time.

    In the long mode the paste is larger than the input queue of the session.
    """
    gate = os.path.join(world.dir, "gate")
    os.mkfifo(gate)
    is_long = os.environ.get("HOLDFAST_LONG") == "1"
    paste = os.urandom((5 << 20) if is_long else (3 << 18)).hex().encode() + b"\n"
    script = f"stty raw -echo; printf ready; read x <{gate}; head -c {len(paste)} | sha256sum; read x"
    async with await Holdfast.connect(world.socket) as h, await spawn(h, "/bin/sh", "-c", script) as a:
        await read_until(a, b"ready")
        pasting = asyncio.ensure_future(a.write(paste))
        while is_long and not isinstance(await a.__anext__(), InputFull):  # the program does not read yet
            pass
        assert not (is_long and pasting.done())
        os.kill((await h.status())["proxy"]["pid"], signal.SIGKILL)
        assert len(a._input) <= 1 << 20
        await world.run("proxy", "start")
        await asyncio.to_thread(open_gate, gate)
        await asyncio.gather(pasting, read_until(a, hashlib.sha256(paste).hexdigest().encode()))
        await a.flush()


def open_gate(path: str) -> None:
    with open(path, "w") as gate:
        gate.write("\n")


@run
async def test_gap(world: World) -> None:
    """A caller that does not read receives a gap and a snapshot, and stores no more than the limit."""
    async with await Holdfast.connect(world.socket) as h:
        lines, line = 55000, "x" * 70
        a = await spawn(h, "/bin/sh", "-c", f"stty -echo; read x; yes {line} | head -n {lines}; echo the end; read x")
        await a.write("\n")
        await h.await_(a.session["id"], text="^the end$", timeout_ms=60000)
        assert sum(cost for _, _, cost in a._events) <= (1 << 20) + (1 << 15) + 256
        missed, offset, left, last = 0, 0, 0, b""
        while not last.endswith(b"the end\r\n"):
            e = await a.__anext__()
            if isinstance(e, Resync):
                missed, offset, left, last = missed + e.bytes_missed, e.offset, e.snapshot_bytes, b""
            elif isinstance(e, Snapshot):
                left -= len(e.data)
                assert e.left == left
                last += e.data
                if left == 0 and b"the end" in last:  # the snapshot has all of the output
                    break
            elif isinstance(e, Output):
                assert e.offset == offset and left == 0
                offset += len(e.data)
                last = (last + e.data)[-100:]
        assert missed > 0
        assert a.offset == (await h.info(a.session["id"]))["output_offset"] == lines * (len(line) + 2) + 9
        await a.detach()
        with pytest.raises(StopAsyncIteration):
            await a.__anext__()
        b = await h.attach(a.session["id"], cols=100, rows=30, steal=True, mode="exclusive")
        assert isinstance(await b.__anext__(), Resync)
        assert (b.session["size"], b.session["attachments"]) == ({"cols": 100, "rows": 30}, 1)
        with pytest.raises(HoldfastError) as err:
            await h.attach(a.session["id"])
        assert err.value.code == "already_attached"
        reader = await h.attach(a.session["id"], mode="read_only")
        with pytest.raises(HoldfastError) as denied:
            await reader.write("x")
        assert denied.value.code == "permission_denied"
        c = await h.attach(a.session["id"], mode="exclusive", steal=True)
        assert [e async for e in b if isinstance(e, Stolen)]
        c.resize(70, 20)
        await c.write("\n")
        assert [e.exit_code async for e in c if isinstance(e, Exit)] == [0]


@run
async def test_stopped(world: World) -> None:
    """Requests to a proxy that is stopped fail in time. When it continues, nothing is lost."""
    async with await Holdfast.connect(world.socket, redial=Redial(give_up=1, answer=0.5)) as h:
        a = await spawn(h, *ECHO)
        await a.write("1\n")
        await read_until(a, b"got 1\r\n")
        pid = (await h.status())["proxy"]["pid"]
        os.kill(pid, signal.SIGSTOP)
        try:
            with pytest.raises(HoldfastError) as err:
                while True:  # the signal may take effect after the first request
                    await h.info(a.session["id"])
            assert err.value.code == "timeout"
            with pytest.raises(HoldfastError) as err:
                await h.wait(a.session["id"], timeout_ms=100)
            assert err.value.code == "timeout"
            await a.write("2\n")
        finally:
            os.kill(pid, signal.SIGCONT)
        await read_until(a, b"got 2\r\n")
        while True:
            try:
                info = await h.info(a.session["id"])
                break
            except HoldfastError as unconnected:
                assert unconnected.code == "connect", unconnected
        assert info["state"] == "running"
        await a.write(b"\x04")
        assert [e.exit_code async for e in a if isinstance(e, Exit)] == [5]
