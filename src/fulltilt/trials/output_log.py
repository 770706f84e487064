"""What a command prints, in a file of bounded size: its end is kept.

The command writes into the file itself, so that nothing it prints can block it, wakes the parent, or is lost with it.
While it runs the parent gives back the space of all but the end, by punching a hole: unlike cutting the file, that
cannot race with the command's own writing.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
from pathlib import Path
from typing import IO

TAIL_BYTES = 64_000
_MOST_BYTES = 8 << 20
"""Space beyond this is given back."""
_PUNCH_HOLE_AND_KEEP_SIZE = 0x02 | 0x01


class OutputLog:
    """One for each trial."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._given_back = 0
        """Bytes at the start of the file that take no space any more."""

    def open(self) -> IO[bytes]:
        """For the command's standard output and error, together."""
        return self._path.open("ab")

    def trim(self) -> None:
        """Give back the space of what is too far from the end. Cheap when there is nothing to do."""
        with contextlib.suppress(OSError):
            size = self._path.stat().st_size
            if size < self._given_back:
                self._given_back = 0  # it was cut
            if size - self._given_back > _MOST_BYTES:
                self._give_back(size - TAIL_BYTES)

    def _give_back(self, num_bytes: int) -> None:
        descriptor = os.open(self._path, os.O_RDWR)
        try:
            if _punch_hole(descriptor, num_bytes):
                self._given_back = num_bytes
            else:
                os.ftruncate(descriptor, 0)  # the command appends, so it goes on at the start
                self._given_back = 0
        finally:
            os.close(descriptor)

    def tail(self) -> str:
        """The end, to read: bytes that are no text are replaced."""
        return read_tail(self._path).decode("utf-8", errors="replace")

    def keep_tail(self) -> None:
        """The command has ended: make the file small. Written beside it first, as the disk may be full."""
        with contextlib.suppress(OSError):
            if self._path.stat().st_size > 2 * TAIL_BYTES:
                part = self._path.with_name(self._path.name + ".part")
                part.write_bytes(b"[earlier output left out]\n" + read_tail(self._path))
                part.replace(self._path)


def read_tail(path: Path, num_bytes: int = TAIL_BYTES) -> bytes:
    """The end of a file; empty when it cannot be read."""
    try:
        with path.open("rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - num_bytes))
            return file.read(num_bytes)
    except OSError:
        return b""


def _punch_hole(descriptor: int, num_bytes: int) -> bool:
    """Free the first bytes; False where the file system cannot."""
    if not sys.platform.startswith("linux"):
        return False
    try:
        fallocate = ctypes.CDLL(None, use_errno=True).fallocate64
    except AttributeError:
        return False
    fallocate.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
    return bool(fallocate(descriptor, _PUNCH_HOLE_AND_KEEP_SIZE, 0, num_bytes) == 0)
