"""Starts and replaces the programs proxy and supervisor."""

from __future__ import annotations

import asyncio
import hashlib
import os
import secrets
import shutil
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Awaitable, Callable, List, Optional, Tuple

from .connection import unix_socket
from .errors import HoldfastError
from .version import is_older, is_release

if TYPE_CHECKING:
    from .wire import StatusReportMessage

PROGRAMS = ("proxy", "supervisor")
#: The time that one of the programs may take for a command. An upgrade waits for the old and the new program.
COMMAND_S = 90.0
#: Bytes of the longest path of a socket, and of the longest name of a socket in it.
MAX_SOCKET_PATH = 103 if sys.platform == "darwin" else 107
MAX_SOCKET_NAME = 40
#: Holds a runtime directory for each user with a login session, on Linux.
USERS_RUNTIME = "/run/user"
#: The directory in `dir` with a copy of the programs of each version.
COPIES = "programs"
#: The names of copies that are being made begin with this. They are removed after a day, if their maker has died.
DRAFT = ".draft-"
DRAFT_S = 24 * 3600


@dataclass(frozen=True)
class Upgrade:
    """Older programs were replaced, or, if `error` is set, were not and continue. `old` and `new` are versions."""

    old: str
    new: str
    error: Optional[HoldfastError] = None


@dataclass(frozen=True)
class _Copy:
    """A directory with the programs of one version."""

    path: Path
    version: str


async def prepare(dir: str, source: Optional[str]) -> Daemon:
    """Copy the programs of a directory, default those of this package, into `dir`."""
    if not dir:
        raise HoldfastError("invalid_argument", "dir is empty; name the directory of the app's terminals")
    home = Path(os.path.abspath(dir))
    bin = Path(source) if source is not None else Path(__file__).parent / "bin"
    if not (bin / "proxy").exists():
        raise HoldfastError("programs_missing", f"there are no programs in {bin}: install the wheel for this system", retryable=False)
    try:
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        version = await _version_of(bin)
        return Daemon(home, await asyncio.to_thread(_copy_of, bin, version, home))
    except OSError as err:
        raise HoldfastError("connect", f"copy the programs of {bin} into {home}: {err}") from err


class Daemon:
    """The programs that use a directory."""

    def __init__(self, dir: Path, mine: _Copy) -> None:
        self._dir = dir
        self._mine = mine
        self._dial = unix_socket(socket_path(str(dir)))
        self._starting = asyncio.Lock()

    async def dial(self) -> Tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connect to the proxy. If none runs, because it has not been started yet or has crashed, start it."""
        try:
            return await self._dial()
        except OSError:
            pass
        async with self._starting:
            try:
                return await self._dial()  # another connection may have started it
            except OSError:
                await self._start_newest()
            return await self._dial()

    async def _start_newest(self) -> None:
        """Start the newest copy of the programs that starts.

        Another version of the app may have copied newer ones, and may have replaced the running programs by them. If
        none starts, raise the error of this version's.
        """
        left = [c for c in self._copies() if is_release(c.version) or c == self._mine]
        error: Optional[HoldfastError] = None
        while left:
            copy = next(c for c in left if not any(is_older(c.version, other.version) for other in left))
            left.remove(copy)
            try:
                await self._run(copy, "start")
                return
            except HoldfastError as err:
                if copy == self._mine:
                    error = err
        if error is not None:
            raise error

    async def upgrade(self, status: Callable[[], Awaitable[StatusReportMessage]], report: Optional[Callable[[Upgrade], None]]) -> None:
        """Replace the running programs if one of them is older, and remove copies that no process needs."""
        old = _oldest(await status())
        if is_older(old, self._mine.version):
            error: Optional[HoldfastError] = None
            try:
                await self._run(self._mine, "upgrade")
            except HoldfastError as err:
                # Another process of the app may have replaced the programs at the same time.
                if is_older(_oldest(await status()), self._mine.version):
                    error = err
            if report is not None:
                report(Upgrade(old, self._mine.version, error))
        now = await status()
        supervisor = now.get("supervisor")
        if supervisor:  # otherwise it may be any of them
            await asyncio.to_thread(self._remove_copies, {now["proxy"]["version"], supervisor["version"], self._mine.version})

    def _copies(self) -> List[_Copy]:
        return [_Copy(p, p.name) for p in (self._dir / COPIES).iterdir() if not p.name.startswith(DRAFT)]

    def _remove_copies(self, keep: set[str]) -> None:
        """Remove the copies of all versions but some, and but the latest other one.

        The keeper of the sessions returns to the program before if a new one fails, so that one must stay.
        """
        others = sorted((c.path for c in self._copies() if c.version not in keep), key=_modified, reverse=True)
        drafts = [p for p in (self._dir / COPIES).iterdir() if p.name.startswith(DRAFT) and time.time() - _modified(p) > DRAFT_S]
        for path in others[1:] + drafts:
            shutil.rmtree(path, ignore_errors=True)  # the next start tries it again

    async def _run(self, programs: _Copy, command: str) -> None:
        """Run a command of the proxy's program for the directory."""
        env = {**os.environ, "HOLDFAST_DIR": str(self._dir)}
        env.pop("HOLDFAST_SUPERVISOR", None)  # the one beside the proxy
        await _execute([str(programs.path / "proxy"), command], env)


def _oldest(status: StatusReportMessage) -> str:
    """Return the version of the older one of both running programs."""
    proxy, supervisor = status["proxy"]["version"], status.get("supervisor")
    return supervisor["version"] if supervisor and is_older(supervisor["version"], proxy) else proxy


def _modified(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return time.time()


def _copy_of(source: Path, version: str, dir: Path) -> _Copy:
    """Copy the programs into a directory of their version, because an installer may remove the files while they run."""
    path = dir / COPIES / version
    if path.exists():
        return _Copy(path, version)
    draft = path.parent / (DRAFT + secrets.token_hex(8))
    try:
        draft.mkdir(mode=0o700, parents=True)
        for program in PROGRAMS:
            with open(source / program, "rb") as old, open(draft / program, "wb") as new:
                shutil.copyfileobj(old, new, 1 << 20)
                new.flush()
                os.fsync(new.fileno())
            (draft / program).chmod(0o700)
        draft.rename(path)
    except OSError:
        shutil.rmtree(draft, ignore_errors=True)
        if not path.exists():  # otherwise another process of the app has made the copy
            raise
    return _Copy(path, version)


async def _version_of(source: Path) -> str:
    """Return the version of programs.

    The file `version` names it, which a wheel has. For other directories it is a sum of the programs, unless they print
    the version of a release.
    """
    named = source / "version"
    if named.exists():
        return named.read_text().strip()
    printed = (await _execute([str(source / "proxy"), "--version"], dict(os.environ))).split()[-1:]
    if printed and is_release(printed[0]):
        return printed[0]
    sum = hashlib.sha256()
    for program in PROGRAMS:
        sum.update((source / program).read_bytes())
    return sum.hexdigest()[:16]


async def _execute(args: List[str], env: dict[str, str]) -> str:
    """Run a program to its end, and return its output. Errors: `connect`."""
    line = " ".join(args)
    try:
        process = await asyncio.create_subprocess_exec(
            *args, env=env, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
        )
    except OSError as err:
        raise HoldfastError("connect", f"{line}: {err}") from err
    try:
        out, text = await asyncio.wait_for(process.communicate(), COMMAND_S)
    except BaseException as err:
        if process.returncode is None:
            process.kill()
        if isinstance(err, asyncio.TimeoutError):
            raise HoldfastError("connect", f"{line}: it did not end within {COMMAND_S:.0f} s") from None
        raise
    if process.returncode != 0:
        raise HoldfastError("connect", f"{line}: {text.decode(errors='replace').strip() or f'exit code {process.returncode}'}")
    return out.decode(errors="replace")


def socket_path(dir: str) -> str:
    """Return the path of the socket of the proxy that uses a directory, which is in /tmp if it would be too long."""
    if len(os.fsencode(dir)) + 1 + MAX_SOCKET_NAME <= MAX_SOCKET_PATH:
        return os.path.join(dir, "proxy.sock")
    return f"/tmp/holdfast-{os.geteuid()}-{hashlib.sha256(os.fsencode(dir)).hexdigest()[:8]}/proxy.sock"


def default_socket() -> str:
    """Return the path of the socket of this user's proxy (protocol/SPEC.md, Who listens where)."""
    if os.environ.get("HOLDFAST_DIR"):
        return socket_path(os.path.abspath(os.environ["HOLDFAST_DIR"]))
    home = os.path.join(os.path.expanduser("~"), "Library/Application Support" if sys.platform == "darwin" else ".local/state")
    states = [state for state in (os.environ.get("XDG_STATE_HOME", ""), home) if os.path.isabs(state)]
    last = [socket_path(os.path.join(state, "holdfast", "run")) for state in states]
    own = os.path.join(USERS_RUNTIME, str(os.geteuid())) if sys.platform == "linux" else ""
    run = os.environ.get("XDG_RUNTIME_DIR", "")
    if not os.path.isabs(run) or _owner(run) not in (None, os.geteuid()):
        run = own if own and _owner(own) == os.geteuid() and os.stat(own).st_mode & 0o077 == 0 else ""
    if not run and not last:
        raise HoldfastError("connect", "no home directory is known; set HOME, or choose a directory with HOLDFAST_DIR", retryable=False)
    if not run:
        return last[0]
    chosen = socket_path(os.path.join(run, "holdfast"))
    if own and chosen == socket_path(os.path.join(own, "holdfast")) and not _is_served(chosen):
        # Daemons that were started before the login serve in the directory that they found then.
        return next((path for path in last if _is_served(path)), chosen)
    return chosen


def _owner(path: str) -> Optional[int]:
    """Return the user of a directory, or None if it cannot be read."""
    try:
        return os.stat(path).st_uid
    except OSError:
        return None


def _is_served(socket: str) -> bool:
    """Tell whether a process holds the lock of a socket in the directory of this one."""
    import fcntl  # Windows has none, and does not come here

    for lock in Path(socket).parent.glob("*.sock.lock"):
        try:
            with lock.open() as file:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except OSError:
            continue  # it is no lock that this user can read
    return False
