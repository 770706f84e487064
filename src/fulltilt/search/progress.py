"""What a tune tells while it runs."""

from __future__ import annotations

from typing import Protocol

from fulltilt.records.result import TechniqueResult


class Progress(Protocol):
    """Told of what is going on. All calls come from one thread."""

    def stage(self, text: str) -> None:
        """A new part of the work begins."""

    def trying(self, text: str, *, done: int, total: int) -> None:
        """A candidate is being tried: number `done` + 1 of `total`."""

    def found(self, result: TechniqueResult) -> None:
        """A technique's outcome is known."""

    def tick(self, *, spent: float, budget: float) -> None:
        """Seconds spent and allowed."""

    def note(self, text: str) -> None:
        """Something worth a line."""


class Silent:
    """Says nothing."""

    def stage(self, text: str) -> None:
        pass

    def trying(self, text: str, *, done: int, total: int) -> None:
        pass

    def found(self, result: TechniqueResult) -> None:
        pass

    def tick(self, *, spent: float, budget: float) -> None:
        pass

    def note(self, text: str) -> None:
        pass
