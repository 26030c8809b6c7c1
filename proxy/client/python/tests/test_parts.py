"""Tests of the parts that need no proxy."""

from __future__ import annotations

import asyncio
import fcntl
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import List, Tuple

import pytest

from holdfast import Holdfast, HoldfastError, frames, programs
from holdfast.connection import Connection, Room
from holdfast.input import InputBuffer
from holdfast.position import Position
from holdfast.programs import socket_path
from holdfast.version import is_older, is_release

GOLDEN = Path(__file__).parents[4] / "protocol" / "frame" / "testdata"


def golden(name: str) -> bytes:
    return bytes.fromhex("".join(line.partition("#")[0] for line in (GOLDEN / f"{name}-v1.hex").read_text().splitlines()))


def received(data: bytes) -> object:
    """Return the first frame that a connection receives."""

    async def read() -> object:
        reader = asyncio.StreamReader()
        reader.feed_data(data)
        reader.feed_eof()
        return await Connection(reader, None).receive()  # type: ignore[arg-type]

    return asyncio.run(read())


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has /run/user")
def test_default_socket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The commands and this client must find the same proxy; shared/config/paths.go has the rules."""
    with tempfile.TemporaryDirectory() as short:
        users, home = Path(short, "user"), Path(short, "home")
        own, last = users / str(os.geteuid()), home / ".local/state/holdfast/run"
        last.mkdir(parents=True)
        monkeypatch.setattr(programs, "USERS_RUNTIME", str(users))
        monkeypatch.setenv("HOME", str(home))
        for name in ("HOLDFAST_DIR", "XDG_RUNTIME_DIR", "XDG_STATE_HOME"):
            monkeypatch.delenv(name, raising=False)
        in_own, in_last = str(own / "holdfast/proxy.sock"), str(last / "proxy.sock")
        assert programs.default_socket() == in_last
        monkeypatch.setenv("XDG_STATE_HOME", "relative")
        assert programs.default_socket() == in_last
        monkeypatch.setenv("HOME", "relative")
        with pytest.raises(HoldfastError) as err:
            programs.default_socket()
        assert err.value.code == "connect" and "HOME" in str(err.value)
        monkeypatch.setenv("HOME", str(home))
        own.mkdir(parents=True, mode=0o755)
        assert programs.default_socket() == in_last, "other users can read the runtime directory"
        own.chmod(0o700)
        assert programs.default_socket() == in_own
        monkeypatch.setenv("XDG_RUNTIME_DIR", str(own))
        (last / "supervisor.sock.lock").touch()
        assert programs.default_socket() == in_own, "the lock is not held"
        with (last / "supervisor.sock.lock").open() as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            assert programs.default_socket() == in_last, "the daemons were started before the login"
            (own / "holdfast").mkdir()
            with (own / "holdfast/proxy.sock.lock").open("w") as newer:
                fcntl.flock(newer, fcntl.LOCK_EX)
                assert programs.default_socket() == in_own, "daemons run in both"
            monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
            assert programs.default_socket() == socket_path(str(tmp_path / "holdfast")), "another runtime directory was chosen"


def test_frames() -> None:
    output = received(golden("output"))
    assert isinstance(output, tuple) and frames.data_frame(*output) == golden("output")
    m = received(golden("control"))
    assert isinstance(m, dict) and isinstance(m["type"], str)
    assert received(b"\0\0\0\2\xffx" + golden("control")) == m  # a kind that is not known yet
    for wrong in (b"\0\0\0\0\0", b"\0\1\0\1\0", b"\0\0\0\4\0[]1", b"\0\0\0\5\1abcd", b"\0\0\0\3\0{}", b"\0\0\0\11\0{\"type\":"):
        with pytest.raises(HoldfastError) as err:
            received(wrong + b"\0" * 16)
        assert err.value.code == "decode", wrong
    with pytest.raises(HoldfastError) as lost:
        received(golden("output")[:-1])
    assert lost.value.code == "lost"
    with pytest.raises(HoldfastError) as large:
        frames.frame(frames.CONTROL, b" " * frames.MAX_FRAME)
    assert large.value.code == "frame_too_large"


def test_text() -> None:
    """A path that is not UTF-8 is refused, because the command would act on another one."""

    async def send() -> None:
        Connection(asyncio.StreamReader(), None).send({"type": "spawn", "cwd": os.fsdecode(b"/a\xff")})  # type: ignore[arg-type]

    with pytest.raises(HoldfastError) as err:
        asyncio.run(send())
    assert err.value.code == "invalid_argument"


def test_input() -> None:
    b = InputBuffer()
    b.resume(100, True)
    b.add(b"x" * 40000)
    assert b.next() == (100, b"x" * 32768)
    b.accepted(150)
    assert (b.base, len(b), b.next()) == (150, 39950, (32868, b"x" * 7232))
    assert b.next() is None
    b.resume(200, False)  # another connection
    assert b.next() == (200, b"x" * 32768)
    b.accepted(50_000)
    assert (b.base, len(b)) == (40100, 0)
    b.add(b"abc")
    b.resume(0, False)  # the session has forgotten this writer
    assert b.next() == (0, b"abc")


def test_position() -> None:
    p = Position()
    p.attached({"offset": 500, "snapshot_bytes": 20, "bytes_missed": 30}, "i", {"instance": "i", "offset": 100})
    assert (p.had, p.stored, p.snapshot(5)) == (130, 100, 15)
    assert p.resume({}, False) == {"resume": {"instance": "i", "offset": 130}, "steal": False, "snapshot": True, "screen_only": False}
    assert (p.snapshot(15), p.had) == (0, 500)
    p.output(500, 7)
    assert p.resume({}, False)["snapshot"] is False
    p.resync({"offset": 900, "bytes_missed": 10, "snapshot_bytes": 3})
    assert (p.had, p.stored) == (517, 507)
    p.snapshot(3)
    p.viewed(950)
    assert p.resume({"cols": 80}, False) == {
        "cols": 80, "resume": {"instance": "i", "offset": 950}, "steal": False, "snapshot": True, "screen_only": True
    }


VECTORS = GOLDEN.parents[1] / "testdata" / "client-v1.json"


@pytest.mark.skipif(not VECTORS.exists(), reason="this tree has no test vectors for clients")
def test_vectors() -> None:
    """The test vectors for clients in all languages."""
    vectors = json.loads(VECTORS.read_text())
    for v in vectors["positions"]:
        p = Position()
        for step in v["steps"]:
            ((do, arg),) = step.items()
            if do == "attached":
                p.attached(arg, "i", {"instance": "i", "offset": arg["resume"]} if "resume" in arg else None)
            elif do == "resync":
                p.resync(arg)
            elif do == "output":
                p.output(arg["offset"], arg["bytes"])
            else:
                {"snapshot": p.snapshot, "view": p.viewed}[do](arg)
        got = p.resume({}, False)
        want = {"snapshot": False, "screen_only": False, **v["resume"]}
        assert {"offset": got["resume"]["offset"], "snapshot": got["snapshot"], "screen_only": got["screen_only"]} == want, v["name"]
    for v in vectors["inputs"]:
        b = InputBuffer()
        for step in v["steps"]:
            ((do, arg),) = step.items()
            if do == "sends":
                sent = list(iter(b.next, None))
                assert [{"offset": offset, "data": data.decode()} for offset, data in sent] == arg, v["name"]
            elif do == "type":
                b.add(arg.encode())
            elif do == "accepted":
                b.accepted(arg)
            else:
                b.resume(arg, do == "attached")
    for v in vectors["frames"]:
        got_frames, code = asyncio.run(split([bytes.fromhex(piece) for piece in v["pieces"]]))
        assert ([{"kind": k, "payload": p.hex()} for k, p in got_frames], code) == (v["frames"], "decode" if v.get("error") else "lost"), v["name"]


async def split(pieces: List[bytes]) -> Tuple[List[Tuple[int, bytes]], str]:
    """Return the frames in a stream that arrives in pieces, and the error at its end."""
    reader, got = asyncio.StreamReader(), []
    conn = Connection(reader, None)  # type: ignore[arg-type]
    conn._limit = frames.MAX_FRAME

    async def read() -> None:
        while True:
            got.append(await conn.read_frame())

    reading = asyncio.ensure_future(read())
    for piece in pieces:
        reader.feed_data(piece)
        await asyncio.sleep(0)
    reader.feed_eof()
    with pytest.raises(HoldfastError) as err:
        await reading
    return got, err.value.code


def test_room() -> None:
    async def use() -> None:
        room = Room(100)
        room.add(99)
        await room.wait()
        room.add(1)
        waits = asyncio.ensure_future(room.wait())
        room.remove(74)
        await asyncio.sleep(0)
        assert not waits.done()
        room.remove(1)
        await waits

    asyncio.run(use())


def test_versions() -> None:
    order = ["v1.0.0-alpha", "1.0.0-alpha.1", "1.0.0-alpha.beta", "1.0.0-beta.2", "1.0.0-beta.11", "v1.0.0-rc.1", "1.0.0", "1.0.1+5.gabc", "v1.10.0"]
    for i, a in enumerate(order):
        assert [is_older(a, b) for b in order] == [i < j for j in range(len(order))]
    assert [is_release(v) for v in ("v1.2.3", "1.2", "dev", "1.2.3-", "٣.1.1")] == [True, False, False, False, False]


def test_programs(tmp_path: Path) -> None:
    """The sources have no programs, and a long path of a socket is replaced."""
    with pytest.raises(HoldfastError) as missing:
        asyncio.run(Holdfast.start(dir=str(tmp_path / "app")))
    assert (missing.value.code, list(tmp_path.iterdir())) == ("programs_missing", [])
    assert socket_path("/home/ada/terminals") == "/home/ada/terminals/proxy.sock"
    sum = hashlib.sha256(b"/" + b"x" * 66).hexdigest()[:8]
    assert socket_path("/" + "x" * 66) == f"/tmp/holdfast-{os.geteuid()}-{sum}/proxy.sock"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can listen as another user")
def test_peer() -> None:
    """A socket on which another user listens is refused."""
    listen = "import socket, sys; s = socket.socket(socket.AF_UNIX); s.bind(sys.argv[1]); s.listen(); print(flush=True); s.accept()[0].recv(1)"
    with tempfile.TemporaryDirectory() as dir:
        os.chmod(dir, 0o777)
        path = os.path.join(dir, "proxy.sock")
        with subprocess.Popen([sys.executable, "-c", listen, path], user=65534, stdout=subprocess.PIPE) as other:
            assert other.stdout and other.stdout.readline()
            with pytest.raises(HoldfastError) as err:
                asyncio.run(Holdfast.connect(path))
            assert err.value.code == "unauthorized"
