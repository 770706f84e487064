"""One dial: how long a tune may take."""

from __future__ import annotations

from collections.abc import Callable


class Budget:
    """Counts down on the executor's clock."""

    def __init__(self, seconds: float, now: Callable[[], float]) -> None:
        self._now, self._begun = now, now()
        self.seconds = seconds

    @property
    def deadline(self) -> float:
        """The end, on the executor's clock."""
        return self._begun + self.seconds

    @property
    def spent(self) -> float:
        return self._now() - self._begun

    @property
    def remaining(self) -> float:
        return max(0.0, self.deadline - self._now())
