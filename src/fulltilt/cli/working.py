"""What surrounds long work on the command line: progress on a terminal, and signals that end it with a report."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fulltilt.search.progress import Progress


@contextmanager
def progress_shown(wanted: bool) -> Iterator[Progress]:
    """Progress on standard error, or none."""
    if not wanted:
        from fulltilt.search.progress import Silent

        yield Silent()
        return
    from fulltilt.cli.progress import TerminalProgress

    progress = TerminalProgress()
    try:
        yield progress
    finally:
        progress.close()


@contextmanager
def terminated_as_interrupted() -> Iterator[None]:
    """SIGTERM and SIGHUP end the work as Ctrl-C does, with a report. One that is ignored (nohup) stays ignored."""

    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    heeded = [n for n in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(n) is not signal.SIG_IGN]
    before = {number: signal.signal(number, interrupt) for number in heeded}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
