"""A harness for the conformance suite of clients: `python3 tests/harness.py`.

It reads commands from standard input and writes events to standard output, as JSON, one on each line.
"""

from __future__ import annotations

import asyncio
import base64
import json
import sys
from pathlib import Path
from typing import Any, Awaitable, Callable, Dict, Optional, cast

sys.path.insert(0, str(Path(__file__).parents[1]))

from holdfast import Attachment, Exit, Holdfast, HoldfastError, Output, Resized, Resync, Snapshot, Stolen, View
from holdfast.wire import AttachSpec

Command = Dict[str, Any]


def say(event: str, **fields: Any) -> None:
    print(json.dumps({"event": event, **fields}), flush=True)


class Harness:
    """The client under test, and its attachment."""

    client: Holdfast
    attachment: Attachment

    def __init__(self) -> None:
        self.is_connected = False
        self.reader: Optional[asyncio.Task[None]] = None

    async def connect(self, c: Command) -> None:
        self.client = await Holdfast.connect(c["socket"])
        self.is_connected = True
        say("connected")

    async def spawn(self, c: Command) -> None:
        s = await self.client.spawn(session_id=c["session_id"], argv=c["argv"])
        say("spawned", session_id=s["session_id"], instance=s["session"]["instance"])

    async def info(self, c: Command) -> None:
        s = await self.client.info(c["session_id"])
        say("info", session_id=s["id"], pid=s["pid"])

    async def attach(self, c: Command) -> None:
        spec: Dict[str, Any] = {name: c[name] for name in ("cols", "rows", "view", "writer") if name in c}
        if "instance" in c:
            spec["resume"] = {"instance": c["instance"], "offset": c["offset"]}
        self.attachment = await self.client.attach(c["session_id"], **cast(AttachSpec, spec))
        say("attached")
        self.reader = asyncio.create_task(self.read(self.attachment))

    async def read(self, attachment: Attachment) -> None:
        """Tell the events of an attachment until its end."""
        try:
            async for e in attachment:
                if isinstance(e, Output):
                    say("output", offset=e.offset, data_b64=base64.b64encode(e.data).decode())
                elif isinstance(e, Resync):
                    say("reset", missed=e.bytes_missed, screen_only=e.screen_only)
                elif isinstance(e, (Snapshot, View)):
                    say(type(e).__name__.lower(), data_b64=base64.b64encode(e.data).decode())
                elif isinstance(e, Resized):
                    say("resized", cols=e.cols, rows=e.rows)
                elif isinstance(e, Exit):
                    say("exit", exit_code=e.exit_code)
                elif isinstance(e, Stolen):
                    say("stolen")
        except HoldfastError as err:
            say("failed", of="attachment", code=err.code)

    async def type(self, c: Command) -> None:
        await self.attachment.write(base64.b64decode(c["data_b64"]))

    async def resize(self, c: Command) -> None:
        self.attachment.resize(c["cols"], c["rows"])

    async def position(self, c: Command) -> None:
        say("position", writer=self.attachment.writer, **self.attachment.resume)

    async def detach(self, c: Command) -> None:
        await self.attachment.detach()
        say("detached")

    async def close(self, c: Command) -> None:
        if self.is_connected:
            await self.client.close()
        if self.reader is not None:
            await self.reader
        self.is_connected, self.reader = False, None
        say("closed")


async def main() -> None:
    harness = Harness()
    commands = asyncio.StreamReader(limit=1 << 24)
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(commands), sys.stdin)
    say("ready", lacks=["websocket"])
    running: Dict[asyncio.Task[None], str] = {}

    async def run(c: Command) -> None:
        do: Callable[[Command], Awaitable[None]] = getattr(harness, c["do"])
        try:
            await do(c)
        except HoldfastError as err:
            if c["do"] in ("type", "resize"):
                return  # the suite expects no answer; the event of the attachment's end tells the reason
            say("failed", of=c["do"], code=err.code, **{k: c[k] for k in ("session_id",) if k in c})

    async for line in commands:
        c: Command = json.loads(line)
        # Each command is a task of its own, because the suite may send the next one before the answer. The tasks begin
        # in the order of the commands, so that input stays in order.
        task = asyncio.create_task(run(c))
        running[task] = c["do"]
        task.add_done_callback(running.pop)


if __name__ == "__main__":
    asyncio.run(main())
