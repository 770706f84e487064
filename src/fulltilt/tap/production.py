"""The conduct of `fulltilt run`: apply the recipe, say once what came of it, and keep out of the way."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader

from fulltilt.records.codec import to_json
from fulltilt.records.record import AppliedRecord
from fulltilt.tap.session import Session

REPORTED_AFTER_STEPS = 5
"""Enough for every technique to have engaged."""


class Production:
    """Nothing is measured or written, but for the one line on standard error and the state file that was asked for."""

    def __init__(self, session: Session, state_file: str | None) -> None:
        self._session = session
        self._state_file = state_file
        self._reported = not session.applier
        self._is_watching = True
        session.site.on_note = self._say

    def loader_found(self, loader: DataLoader[Any]) -> None:
        pass

    def module_found(self, name: str, module: nn.Module) -> None:
        pass

    def around_backward(self, call: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        result = call(*args, **kwargs)
        if self._session.conduct is self:
            self._session.clock.backward_done()
        return result

    def before_step(self, name: str, optimizer: torch.optim.Optimizer) -> None:
        pass

    def after_optimizer(self, name: str) -> None:
        pass

    def step_done(self, num_steps: int) -> None:
        if num_steps == REPORTED_AFTER_STEPS and not self._reported:
            self.report()
        if num_steps >= REPORTED_AFTER_STEPS and self._is_watching and self._session.clock.has_optimizer:
            self._is_watching = False
            self._session.stop_watching()

    def report(self) -> None:
        """One line: what was applied, what had no effect and why, what failed."""
        if self._reported or self._session.conduct is not self:
            return
        self._reported = True
        outcomes = self._session.applier.outcomes()
        failure = getattr(sys, "last_value", None)  # set when an exception has ended the script
        if os.environ.get("RANK", "0") != "0" or not (self._session.clock.num_steps or failure):
            return
        self._say(state_line(outcomes))
        self._write_state(outcomes)
        if failure is not None and any(outcome.outcome == "applied" for outcome in outcomes):
            self._say("if the exception above does not come without the recipe, one of these is why: please report it")

    def _write_state(self, outcomes: tuple[AppliedRecord, ...]) -> None:
        if self._state_file:
            with open(self._state_file, "w", encoding="utf-8") as file:
                file.write(to_json(outcomes) + "\n")

    def _say(self, message: str) -> None:
        print(f"fulltilt: {message}", file=sys.stderr, flush=True)


def state_line(outcomes: tuple[AppliedRecord, ...]) -> str:
    """What became of each technique, in one line."""
    words = {"applied": "applied", "no_effect": "no effect", "failed": "failed", "pending": "not applied"}
    parts = []
    for outcome, word in words.items():
        named = [f"{record.name} ({record.detail})" for record in outcomes if record.outcome == outcome]
        if named:
            parts.append(f"{word}: {', '.join(named)}")
    return "; ".join(parts)
