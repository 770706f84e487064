"""The worker's end of the wire to the parent: lines of JSON over a Unix socket.

    worker -> parent   {"kind": "training", "pid": 1, "startup_seconds": 2.1}       the first training call
                       {"kind": "beat", "step": 7}                                  the first; then at most one a second
                       {"kind": "ready", "steps": 8, "step_seconds": [...]}         record.json is written; waiting
                       {"kind": "storage", "message": "..."}                        record.json cannot be written
                       {"kind": "block", "steps": 20, "seconds": 1.1, "step_seconds": [...], "finite": true}
                                                                                    done; waiting
                       {"kind": "bye"}                                              the script has ended by itself
    parent -> worker   {"kind": "go", "steps": 20}   {"kind": "stop"}

A wire that breaks ends the process: its parent is gone, and a trial without one has no purpose.
"""

import json
import os
import socket
import time
from typing import Any

exit_now = os._exit
"""Kept before the seam on it: what ends a trial from inside is no end of the script's own."""


class Wire:
    """Connects at construction."""

    def __init__(self, path: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.connect(path)
        self._lines = self._socket.makefile("r", encoding="utf-8")
        self._last_beat = float("-inf")

    def send(self, **message: Any) -> None:
        try:
            self._socket.sendall(json.dumps(message).encode() + b"\n")
        except OSError:
            exit_now(1)

    def beat(self, step: int) -> None:
        """Say that a step was made: the first, and then at most one a second."""
        now = time.monotonic()
        if now - self._last_beat >= 1.0:
            self._last_beat = now
            self.send(kind="beat", step=step)

    def receive(self) -> dict[str, Any]:
        """Wait for the next command."""
        try:
            line = self._lines.readline()
        except OSError:
            line = ""
        if not line:
            exit_now(1)
        message: dict[str, Any] = json.loads(line)
        return message
