"""Progress on a terminal: one live line that says what is tried and for how long yet, and a line for each finding."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

from fulltilt.records.result import TechniqueResult
from fulltilt.records.words import TechniqueOutcome
from fulltilt.units import format_seconds

if TYPE_CHECKING:
    from rich.console import Console

_MARKS = {
    TechniqueOutcome.KEPT: "[green]+[/]",
    TechniqueOutcome.BROKE_NUMERICS: "[red]![/]",
    TechniqueOutcome.FAILED: "[red]x[/]",
}


class TerminalProgress:
    """Writes to standard error; a live line only where that is a terminal."""

    def __init__(self) -> None:
        from rich.console import Console

        self._console: Console = Console(file=sys.stderr, highlight=False)
        self._status = self._console.status("starting")
        self._doing, self._times, self._last_shown = "starting", "", 0.0
        if self._console.is_terminal:
            self._status.start()

    def stage(self, text: str) -> None:
        self._doing = text
        self._console.print(f"[dim]{_escape(text)}[/]")
        self._show()

    def trying(self, text: str, *, done: int, total: int) -> None:
        self._doing = f"trying {text} ({done + 1} of {total})"
        if not self._console.is_terminal:
            self._console.print(f"[dim]{_escape(self._doing)}[/]")
        self._show()

    def found(self, result: TechniqueResult) -> None:
        mark = _MARKS.get(result.outcome, "[dim]-[/]")
        speed = (
            f" {result.speedup.median:.2f}x [{result.speedup.low:.2f}, {result.speedup.high:.2f}]".replace("[", "\\[")
            if result.speedup is not None
            else ""
        )
        options = ", ".join(f"{key}={value}" for key, value in result.options.items())
        name = f"{result.name}({options})" if options else result.name
        outcome = result.outcome.value.replace("_", " ")
        self._console.print(f"{mark} {_escape(name)}: {outcome}{speed}  [dim]{_escape(result.reason[:160])}[/]")

    def tick(self, *, spent: float, budget: float) -> None:
        self._times = f"{format_seconds(max(1.0, spent))} of at most {format_seconds(budget)}"
        if time.monotonic() - self._last_shown > 0.5:
            self._show()

    def note(self, text: str) -> None:
        self._console.print(_escape(text))

    def close(self) -> None:
        self._status.stop()

    def _show(self) -> None:
        self._last_shown = time.monotonic()
        self._status.update(f"{_escape(self._doing)} [dim]{self._times}[/]")


def _escape(text: str) -> str:
    from rich.markup import escape

    return escape(text)
