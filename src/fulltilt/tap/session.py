"""Joins seams, site and techniques in one process. What is done with steps is the conduct's: trial or production."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, Protocol

import torch
from torch import nn
from torch.utils.data import DataLoader

from fulltilt.records.request import Request
from fulltilt.tap.applier import Applier
from fulltilt.tap.seams.backward import BackwardSeam
from fulltilt.tap.seams.calls import CallSeam
from fulltilt.tap.seams.loaders import LoaderSeam
from fulltilt.tap.seams.optimizers import OptimizerSeam
from fulltilt.tap.site import TapSite
from fulltilt.tap.steps import StepClock
from fulltilt.technique import Spec, Stage
from fulltilt.techniques import spec_of

SETTLED_AFTER_STEPS = 2
"""Root modules are looked for until this many steps have been made (and again when another optimizer is made)."""


class Conduct(Protocol):
    """What a process does with the events of its training."""

    def loader_found(self, loader: DataLoader[Any]) -> None: ...

    def module_found(self, name: str, module: nn.Module) -> None: ...

    def around_backward(self, call: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any: ...

    def before_step(self, name: str, optimizer: torch.optim.Optimizer) -> None: ...

    def after_optimizer(self, name: str) -> None: ...

    def step_done(self, num_steps: int) -> None: ...


class Session:
    """One for each process that has imported torch under a request."""

    def __init__(self, request: Request, find: Callable[[str], Spec] = spec_of) -> None:
        self.backward = BackwardSeam()
        self.calls = CallSeam(self._first_call)
        self.site = TapSite(self.calls, self.backward)
        self.applier = Applier(request.techniques, find)
        self.clock = StepClock(self._step_done)
        self.conduct: Conduct | None = None
        self.keep_watching = False
        """Keep the seams that only observation needs."""
        self.tell_of_optimizers = False
        """Tell the conduct when an optimizer has stepped, when nothing else is watched any more too."""
        self._opened_at_step = 0
        self._optimizers = OptimizerSeam(
            made=self._optimizer_made, before_step=self._before_step, after_step=self._after_step
        )
        self._loaders = LoaderSeam(self._first_iter)

    def start(self, conduct: Conduct) -> None:
        """torch has just been imported: apply what needs nothing more, and listen."""
        self.conduct = conduct
        self.backward.wrappers.insert(0, conduct.around_backward)
        self.backward.install()
        self.applier.apply(self.site.view(), Stage.ENV, Stage.BACKEND)
        self.calls.open()
        os.register_at_fork(after_in_child=self.retire)

    def retire(self) -> None:
        """In a forked child: it has its own work to do and is not measured, but what was applied stays."""
        self.conduct = None

    def undo(self) -> None:
        """Take every seam out; for tests. A process otherwise ends with its seams in."""
        self.calls.undo()
        self.backward.undo()
        self._optimizers.undo()
        self._loaders.undo()

    def stop_watching(self) -> None:
        """Observation is over: keep only the seams that techniques need."""
        self.keep_watching = False
        if self.conduct is not None:
            self.backward.remove(self.conduct.around_backward)
        self._settle()

    def _first_call(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        name = self.site.add_module(module)
        if self.conduct is not None:
            self.guarded(self.conduct.module_found, name, module)
        view = self.site.view(modules={name: module})
        self.applier.apply(view, Stage.MODEL, Stage.LOSS, Stage.COMPILE, Stage.WRAP)

    def _first_iter(self, loader: DataLoader[Any]) -> None:
        self.site.add_loader(loader)
        if self.conduct is not None:
            self.guarded(self.conduct.loader_found, loader)
        self.applier.apply(self.site.view(loaders=(loader,)), Stage.DATA)

    def _optimizer_made(self, optimizer: torch.optim.Optimizer) -> None:
        self.clock.optimizer_made(optimizer)
        self._opened_at_step = self.clock.num_steps
        if self.conduct is not None and self.clock.num_steps:
            self.calls.open()

    def _before_step(self, optimizer: torch.optim.Optimizer) -> None:
        name = self.site.name_of(optimizer)
        if name is None:
            name = self.site.add_optimizer(optimizer)
            self.applier.apply(self.site.view(optimizers={name: optimizer}), Stage.OPTIMIZER)
        for callback in self.site.before_step_callbacks:
            callback(optimizer)
        if self.conduct is not None:  # last: it sees what the optimizer gets
            self.guarded(self.conduct.before_step, name, optimizer)

    def guarded(self, observe: Callable[..., None], *arguments: Any) -> None:
        """What only observes must not end the user's script: an odd module or tensor is noted instead."""
        try:
            observe(*arguments)
        except Exception as error:
            self.site.note(f"not everything could be observed: {type(error).__name__}: {error}")

    def _after_step(self, optimizer: torch.optim.Optimizer) -> None:
        if (self.keep_watching or self.tell_of_optimizers) and self.conduct is not None:
            self.guarded(self.conduct.after_optimizer, self.site.name_of(optimizer) or "")
        self.clock.optimizer_stepped(optimizer)

    def _step_done(self) -> None:
        num_steps = self.clock.num_steps
        if num_steps == 1:
            self.applier.apply(self.site.view(), Stage.STEP)
        for callback in self.site.after_step_callbacks:
            callback(num_steps)
        if self.calls.is_open and num_steps >= self._opened_at_step + SETTLED_AFTER_STEPS and not self.keep_watching:
            self._settle()
        if self.conduct is not None:
            self.conduct.step_done(num_steps)

    def _settle(self) -> None:
        if self.clock.num_steps >= self._opened_at_step + SETTLED_AFTER_STEPS:
            self.calls.settle()
