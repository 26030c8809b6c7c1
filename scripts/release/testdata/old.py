# The older version of the app starts again: it uses the newer programs that run. A version whose programs do not work
# leaves them running, too. Arguments: the directory of the app, the newer version, and a directory for files.

import asyncio
import os
import signal
import sys
import tempfile

from holdfast import Holdfast

dir, newer, files = sys.argv[1:]


async def main() -> None:
    upgrades = []
    async with await Holdfast.start(dir=dir, on_upgrade=upgrades.append) as h:
        assert (await h.status())["supervisor"]["version"] == newer
        assert len(await h.list()) == 1 and upgrades == []

    with tempfile.TemporaryDirectory(dir=files) as programs:
        for name in ("proxy", "supervisor"):
            with open(f"{programs}/{name}", "w") as f:
                f.write('#!/bin/sh\nif [ "$1" = --version ]; then echo proxy version v99.0.0; else echo it is broken >&2; exit 1; fi\n')
            os.chmod(f"{programs}/{name}", 0o700)
        async with await Holdfast.start(dir=dir, programs_dir=programs, on_upgrade=upgrades.append) as h:
            assert [(u.old, u.new, u.error.code) for u in upgrades] == [(newer, "v99.0.0", "connect")], upgrades
            assert "it is broken" in upgrades[0].error.message
            assert len(await h.list()) == 1
            os.kill((await h.status())["proxy"]["pid"], signal.SIGKILL)  # programs of another version are started instead
            await h.list()
            assert (await h.status())["supervisor"]["version"] == newer


asyncio.run(asyncio.wait_for(main(), 120))
