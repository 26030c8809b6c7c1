# Version 1 of an app: it starts the programs and types into a shell, while version 2 of the app, in another process,
# starts and replaces the programs. Arguments: the directory of the app, both versions, and the Python of version 2.

import asyncio
import os
import signal
import sys

from holdfast import Holdfast, Output, Upgrade

dir, version, newer, *other = sys.argv[1:]


async def main() -> None:
    upgrades = []
    async with await Holdfast.start(dir=dir, app=version, on_upgrade=upgrades.append) as h:
        if not other:  # this is version 2
            assert upgrades == [Upgrade(version, newer)], upgrades
            return
        assert upgrades == []
        s = (await h.spawn(argv=["/bin/sh", "-c", 'stty -echo; while read line; do echo "got $line"; done'], cols=80, rows=24))["session"]
        a = await h.attach(s["id"], resume={"instance": s["instance"], "offset": 0})
        answered, typed, shown = asyncio.Event(), 0, bytearray()

        async def read() -> None:
            async for e in a:
                if isinstance(e, Output):
                    shown.extend(e.data)
                    answered.set()

        async def shows(text: bytes) -> None:
            while not shown.endswith(text):
                answered.clear()
                await answered.wait()

        reading = asyncio.ensure_future(read())
        process = await asyncio.create_subprocess_exec(other[0], __file__, dir, version, newer)
        upgrade = asyncio.ensure_future(process.wait())
        while not upgrade.done() or typed < 100:
            typed += 1
            await a.write(f"{typed}\n")
            await shows(b"got %d\r\n" % typed)
        assert upgrade.result() == 0
        assert shown == b"".join(b"got %d\r\n" % n for n in range(1, typed + 1))

        status = await h.status()
        assert (status["proxy"]["version"], status["supervisor"]["version"]) == (newer, newer), status
        assert (await h.info(s["id"]))["pid"] == s["pid"]
        assert sorted(os.listdir(f"{dir}/programs")) == sorted([newer, version])
        os.kill(status["proxy"]["pid"], signal.SIGKILL)  # the client starts the newer one again
        await a.write("last\n")
        await shows(b"got last\r\n")
        assert (await h.status())["proxy"]["version"] == newer
        reading.cancel()
        print(f"{typed} lines typed during the upgrade")


asyncio.run(asyncio.wait_for(main(), 120))
