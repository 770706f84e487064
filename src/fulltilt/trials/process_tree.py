"""All processes of one trial: pause, continue and end them together, and leave none behind.

A process group is not enough: launchers such as torchrun start their workers in sessions of their own. So the members
of a trial are its process group, every descendant of its root, and orphans of its tree. The last are found because the
parent is made the "subreaper" of its descendants (prctl(2)): an orphan becomes its child, recognised by the path of the
request in its environment.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
import time

import psutil

from fulltilt.records.request import REQUEST_VARIABLE

_PR_SET_CHILD_SUBREAPER = 36
_TERM_GRACE_SECONDS = 3.0
_KILL_SECONDS = 10.0


def adopt_orphans(enabled: bool = True) -> None:
    """Make this process the one that orphans of its descendants are given to. Linux only; elsewhere does nothing."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, int(enabled), 0, 0, 0)


class ProcessTree:
    """The processes of a trial, from the process id of its root (also the id of its process group)."""

    def __init__(self, root: int, request_path: str) -> None:
        self._root, self._request_path = root, request_path
        self._known: dict[int, float] = {root: _begun(root)}
        """Process id -> when that process began, as ids are used again."""

    def members(self) -> list[psutil.Process]:
        """Every living process of the trial, zombies left out."""
        parents: dict[int, int] = {}
        processes: dict[int, psutil.Process] = {}
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                parents[process.pid] = process.ppid()
                processes[process.pid] = process
        self._known = {pid: begun for pid, begun in self._known.items() if _begun(pid) == begun}
        found = {pid for pid in processes if self._belongs(pid, parents)}
        self._known |= {pid: _begun(pid) for pid in found if pid not in self._known}
        return [processes[pid] for pid in found if _is_alive(processes[pid])]

    def pause(self) -> None:
        """Stop all members; twice, for one that was being forked meanwhile."""
        for _ in range(2):
            self._signal_all(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal_all(signal.SIGCONT)

    def cpu_seconds(self) -> float:
        """User and system time of all members since they began, with that of their children that have ended."""
        total = 0.0
        for process in self.members():
            with contextlib.suppress(psutil.Error):
                times = process.cpu_times()
                total += times.user + times.system + times.children_user + times.children_system
        return total

    def kill(self) -> None:
        """End all members: politely first, then for certain."""
        self._signal_all(signal.SIGTERM)
        self._signal_all(signal.SIGCONT)
        deadline = time.monotonic() + _TERM_GRACE_SECONDS
        while self.members() and time.monotonic() < deadline:
            self._reap()
            time.sleep(0.05)
        deadline = time.monotonic() + _KILL_SECONDS
        while self.members() and time.monotonic() < deadline:  # one that waits for a dead disk cannot be ended at all
            self._signal_all(signal.SIGKILL)
            self._reap()
            time.sleep(0.02)
        self._reap()

    def _belongs(self, pid: int, parents: dict[int, int]) -> bool:
        seen = set()
        while pid > 1 and pid not in seen:
            if pid in self._known and pid != os.getpid():
                return True
            seen.add(pid)
            parent = parents.get(pid, 0)
            if parent == os.getpid():
                return self._has_our_request(pid)
            pid = parent
        return False

    def _has_our_request(self, pid: int) -> bool:
        try:
            return psutil.Process(pid).environ().get(REQUEST_VARIABLE) == self._request_path
        except psutil.Error:
            return False

    def _signal_all(self, number: signal.Signals) -> None:
        if self._root in self._known:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._root, number)
        for process in self.members():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(process.pid, number)

    def _reap(self) -> None:
        """Collect adopted orphans; the root is collected by whoever started it."""
        for pid in self._known.keys() - {self._root}:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)


def _begun(pid: int) -> float:
    try:
        return float(psutil.Process(pid).create_time())
    except psutil.Error:
        return -1.0


def _is_alive(process: psutil.Process) -> bool:
    try:
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.Error:
        return False
