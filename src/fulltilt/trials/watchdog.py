"""Ends the trials of a parent that was killed: `python -m fulltilt.trials.watchdog SCRATCH`, fed by a pipe.

A paused trial cannot notice that its parent is gone. So a watchdog, a process of its own, waits for the end of the pipe
that its parent holds, and then kills every process that keeps its files in the parent's scratch. "done" is the
good-bye. The scratch is one tuner's own: the folder of results may already be another's, that resumes.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import IO

import psutil

from fulltilt.records.request import REQUEST_VARIABLE, SCRATCH_VARIABLE
from fulltilt.trials.removal import remove_tree


class Watchdog:
    """A context: while it is open, a process watches over this one."""

    def __init__(self, scratch: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "fulltilt.trials.watchdog", str(scratch)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def close(self) -> None:
        pipe: IO[bytes] | None = self._process.stdin
        assert pipe is not None
        with contextlib.suppress(OSError):
            pipe.write(b"done\n")
            pipe.close()
        self._process.wait(timeout=30)

    def __enter__(self) -> Watchdog:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def kill_left_over(requests: Path) -> int:
    """Kill the trials of an earlier tuner in this folder that was killed together with its watchdog; how many.

    Only for who holds the folder's lock: every process whose request lies in it is then nobody's.
    """
    return kill_all(REQUEST_VARIABLE, requests)


def kill_all(variable: str, folder: Path) -> int:
    """Kill every process in whose environment `variable` names a path under `folder`, until there is none."""
    killed: set[int] = set()
    while True:
        found = {pid for pid in psutil.pids() if pid != os.getpid() and _belongs(pid, variable, folder)}
        if not found:
            return len(killed)
        for pid in found:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        if found <= killed:
            return len(killed)
        killed |= found


def _belongs(pid: int, variable: str, folder: Path) -> bool:
    try:
        process = psutil.Process(pid)
        path = process.environ().get(variable)
        return path is not None and folder in Path(path).parents and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def main(scratch: str) -> None:
    """Wait for the end of standard input."""
    for signal_number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(signal_number, signal.SIG_IGN)
    if sys.stdin.read().strip() != "done":
        kill_all(SCRATCH_VARIABLE, Path(scratch))
        remove_tree(scratch)


if __name__ == "__main__":
    main(sys.argv[1])
