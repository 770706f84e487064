"""The conduct of a long run: train on, note the loss of every step and what is evaluated, stop after N steps.

Nothing is timed, and the device is not waited for. Claim, wire, exceptions and record are those of a trial.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader

from fulltilt.records.curve import CurveRecord, EvaluationPoint
from fulltilt.records.record import WorkerRecord
from fulltilt.records.request import TrialRequest
from fulltilt.tap.scalars import DeferredMeans, kept
from fulltilt.tap.seams.losses import LossSeam
from fulltilt.tap.seams.scaling import ScaleSeam
from fulltilt.tap.seams.seeds import seed_everything
from fulltilt.tap.session import Session
from fulltilt.tap.trial import Trial


@dataclasses.dataclass
class _Evaluation:
    """The evaluation that is going on, with one loss function."""

    total: torch.Tensor
    num_calls: int = 1


class LongRun(Trial):
    """A trial whose evidence is its whole curve."""

    def __init__(self, session: Session, request: TrialRequest) -> None:
        super().__init__(session, request)
        self._num_steps_asked = self._evidence_request.num_steps
        self._means = DeferredMeans()
        self._since_step: list[torch.Tensor] = []
        self._losses: dict[str, list[float]] = {}
        self._evaluating: dict[str, _Evaluation] = {}
        self._evaluations: dict[str, tuple[list[float], list[tuple[int, int]]]] = {}
        self._scaling = ScaleSeam()
        LossSeam(self._loss_evaluated)

    def _begin_watching(self) -> None:
        self._evidence_open = False
        self._session.tell_of_optimizers = True

    def loader_found(self, loader: DataLoader[Any]) -> None:
        """The order of the first epoch is drawn when a loader is iterated, before anything is called: seed before."""
        if self._is_claimant is None and self._evidence_request.reseed is not None:
            seed_everything(self._evidence_request.reseed)

    def module_found(self, name: str, module: nn.Module) -> None:
        self._claim()
        self._collector.module_found(name, module)  # reseeds, and nudges the weights where that was asked
        self._collector.modules.clear()

    def around_backward(self, call: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if self._session.conduct is not self:
            return call(*args, **kwargs)
        self._claim()
        self._session.guarded(self._backward_called, args[0] if args else kwargs.get("tensors", ()))
        result = call(*args, **kwargs)
        self._session.clock.backward_done()
        return result

    def _backward_called(self, tensors: Any) -> None:
        self._end_evaluation()
        for tensor in (tensors,) if isinstance(tensors, torch.Tensor) else tuple(tensors):
            if isinstance(tensor, torch.Tensor) and tensor.numel() == 1:
                self._since_step.append(kept(self._scaling.unscaled(tensor)))

    def before_step(self, name: str, optimizer: torch.optim.Optimizer) -> None:
        self._claim()

    def after_optimizer(self, name: str) -> None:
        """The losses since the last optimizer's step are this one's: also those that its closure has computed."""
        if self._since_step:
            scalars, self._since_step = self._since_step, []
            self._means.append(self._losses.setdefault(name, []), scalars)

    def step_done(self, num_steps: int) -> None:
        if not self._is_claimant:
            self._since_step.clear()
            return
        if not self._session.clock.has_optimizer:
            self.after_optimizer("")
        assert self._wire is not None
        self._wire.beat(num_steps)
        if num_steps == self._num_steps_asked:
            sys.stdout.flush()
            sys.stderr.flush()
            self._ready()

    def _loss_evaluated(self, name: str, value: torch.Tensor) -> None:
        if self._session.conduct is self and self._is_claimant is not False:
            self._session.guarded(self._evaluated, name, value)

    def _evaluated(self, name: str, value: torch.Tensor) -> None:
        if self._wire is not None:
            self._wire.beat(self._session.clock.num_steps)  # a long evaluation makes no steps, and is no hang
        value = kept(value.float() if value.element_size() < 4 else value)
        known = self._evaluating.get(name)
        if known is None:
            self._evaluating[name] = _Evaluation(value)
        else:
            known.total = known.total + value
            known.num_calls += 1

    def _end_evaluation(self) -> None:
        """Training goes on: what was evaluated since the last step is one point."""
        for name, evaluation in self._evaluating.items():
            means, places = self._evaluations.setdefault(name, ([], []))
            self._means.append(means, [evaluation.total / evaluation.num_calls])
            places.append((self._session.clock.num_steps, evaluation.num_calls))
        self._evaluating.clear()

    def _make_record(self) -> WorkerRecord:
        self._end_evaluation()
        self._session.guarded(self._means.read)
        return dataclasses.replace(super()._make_record(), curve=self._curve())

    def _curve(self) -> CurveRecord:
        return CurveRecord(
            num_steps=self._session.clock.num_steps,
            losses={name: tuple(losses) for name, losses in self._losses.items()},
            evaluations={
                name: tuple(
                    EvaluationPoint(num_steps=num_steps, mean=mean, num_calls=num_calls)
                    for mean, (num_steps, num_calls) in zip(means, places, strict=True)
                )
                for name, (means, places) in self._evaluations.items()
            },
        )
