"""The real programs, in a directory of their own.

TestPythonClient of scripts/e2e runs these tests. To run them alone:

    HOLDFAST_TEST_PROGRAMS=DIR HOLDFAST_TEST_NEWER=DIR /usr/bin/python3 -m pytest
"""

from __future__ import annotations

import asyncio
import os
import subprocess
from pathlib import Path
from typing import Any, Awaitable, Callable, Iterator

import pytest

LIMIT_S = 120.0  # long, because the machine may be busy; a test that passes does not wait for it


def run(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """Make a coroutine a test that must end in time."""

    def wrapper(world: World) -> None:
        asyncio.run(asyncio.wait_for(test(world), LIMIT_S))

    wrapper.__doc__ = test.__doc__
    return wrapper


class World:
    """A directory in which a proxy and a supervisor run."""

    def __init__(self, dir: Path, programs: str, newer: str) -> None:
        self.dir, self.programs, self.newer = str(dir), programs, newer
        self.socket = str(dir / "proxy.sock")
        self.log = (dir / "commands.log").open("w+")

    def command(self, *args: str, programs: str = "") -> None:
        """Run a command of the programs to its end."""
        program = os.path.join(programs or self.programs, args[0])
        done = subprocess.run([program, *args[1:]], stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log, timeout=LIMIT_S)
        if done.returncode != 0:
            self.log.seek(0)
            raise AssertionError(f"{args} ended with {done.returncode}:\n{self.log.read()}")

    async def run(self, *args: str, programs: str = "") -> None:
        """Run a command while the client continues."""
        await asyncio.to_thread(self.command, *args, programs=programs)


@pytest.fixture(scope="session")
def shared(tmp_path_factory: Any) -> Iterator[World]:
    programs, newer = os.environ.get("HOLDFAST_TEST_PROGRAMS", ""), os.environ.get("HOLDFAST_TEST_NEWER", "")
    if not programs or not newer:
        pytest.skip("HOLDFAST_TEST_PROGRAMS and HOLDFAST_TEST_NEWER must name directories of programs")
    given = os.environ.get("HOLDFAST_TEST_DIR")
    w = World(Path(given) if given else tmp_path_factory.mktemp("h"), programs, newer)
    os.environ["HOLDFAST_DIR"] = w.dir  # the default of connect
    w.command("proxy", "start")
    yield w
    w.command("proxy", "stop")
    w.command("supervisor", "stop", "--sessions=end", programs=newer)
    w.log.close()


@pytest.fixture
def world(shared: World) -> World:
    shared.command("proxy", "start")
    return shared
