"""The contract between fulltilt and a technique. Importable without torch.

A technique is one folder: `spec.py` (this contract filled in, torch-free), `apply.py` (the work, in the worker) and
`card.md` (what it is, when it helps, when it hurts).
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Protocol

from fulltilt.records.record import PhaseRecord, SiteRecord
from fulltilt.records.result import MachineRecord
from fulltilt.records.words import Numerics

if TYPE_CHECKING:
    import torch
    from torch import nn
    from torch.utils.data import DataLoader

__all__ = [
    "Applied",
    "CallWrapper",
    "MachineRecord",
    "NoEffect",
    "Numerics",
    "PhaseRecord",
    "Site",
    "SiteRecord",
    "Spec",
    "Stage",
    "forward_backward_bound",
]


class Stage(IntEnum):
    """When a technique is applied; also the order in which techniques are applied to one thing.

    The comment says what `Site` holds at that moment. A stage may come several times in a process: once for each root
    module, optimizer or loader that appears.
    """

    ENV = 0  # torch has just been imported; nothing exists yet
    BACKEND = 1  # the same moment, after ENV
    DATA = 2  # a DataLoader is about to be iterated for the first time
    MODEL = 3  # a root module is about to be called for the first time in training
    LOSS = 4  # the same moment, after MODEL
    COMPILE = 5  # the same moment, after LOSS
    WRAP = 6  # the same moment, after COMPILE
    OPTIMIZER = 7  # an optimizer is about to make its first step; gradients exist
    STEP = 8  # the first step has been made


@dataclass(frozen=True, kw_only=True, slots=True)
class Applied:
    """The technique did something to the site."""

    detail: str
    """What, in a few words: "24 blocks of class Block compiled"."""
    engaged: Callable[[], str | None] | None = None
    """Asked after some steps. Evidence that it really ran, or None when it never did ("Never hit" is then reported as
    no effect). None for techniques whose effect is a setting that was read back at once."""


@dataclass(frozen=True, kw_only=True, slots=True)
class NoEffect:
    """The technique has nothing to do here, and why."""

    reason: str


CallWrapper = Callable[[Callable[..., Any], tuple[Any, ...], dict[str, Any]], Any]
"""`wrapper(call, args, kwargs)`: makes the call, returns what the user's code is to see."""


class Site(Protocol):
    """All that a technique may touch. `apply` gets one with what has newly appeared."""

    @property
    def modules(self) -> Mapping[str, nn.Module]:
        """Root modules by name (class and order of appearance): new ones in MODEL to WRAP, all of them later."""

    @property
    def optimizers(self) -> Mapping[str, torch.optim.Optimizer]:
        """Optimizers by name: the new one in OPTIMIZER, all of them in STEP."""

    @property
    def loaders(self) -> tuple[DataLoader[Any], ...]:
        """The new loader in DATA, all of them later."""

    @property
    def device(self) -> torch.device:
        """Where the model's parameters live; the CPU until a model is known."""

    @property
    def tie_draws(self) -> bool:
        """Draw the untouched script's random numbers, where the technique would draw others: its numbers are judged."""

    def around(self, module: nn.Module, wrapper: CallWrapper) -> None:
        """Run `wrapper` around every call that the user's code makes of this root module. Last added is innermost."""

    def around_backward(self, wrapper: CallWrapper) -> None:
        """Run `wrapper` around every call of `torch.autograd.backward` (also from `Tensor.backward`)."""

    def before_optimizer_step(self, callback: Callable[[torch.optim.Optimizer], None]) -> None:
        """Call back before every optimizer step, before other hooks of its class see the gradients."""

    def after_step(self, callback: Callable[[int], None]) -> None:
        """Call back after every training step with the number of steps made so far (1, 2, ...)."""

    def note(self, message: str) -> None:
        """Leave a sentence for the record, and for the user in production: something fell back, and why."""


FLOAT32_SUMS = 2.0**-21
"""Relative rounding of float32 sums taken in another order: that of one operation, 2^-24, times the square root of the
number of terms that meet (Higham, Accuracy and Stability of Numerical Algorithms, section 4), taken as 64. Convolutions
with channels last moved the gradients of a GAN by more than weights that were rounded once."""


def _always_available(machine: MachineRecord, site: SiteRecord | None) -> str | None:
    return None


def _no_bound(phases: PhaseRecord, site: SiteRecord) -> float:
    return float("inf")


def _no_candidates(machine: MachineRecord, site: SiteRecord, phases: PhaseRecord) -> tuple[Any, ...]:
    return ()


def forward_backward_bound(phases: PhaseRecord, site: SiteRecord) -> float:
    """Amdahl's law with forward and backward at no cost: no claim is made about how much faster they get."""
    if phases.forward is None or phases.backward is None:
        return float("inf")
    rest = phases.step_seconds - phases.forward - phases.backward
    return phases.step_seconds / rest if rest > 0 else float("inf")


@dataclass(frozen=True, kw_only=True, slots=True)
class Spec:
    """One technique, as everything but its own `apply.py` knows it."""

    name: str
    summary: str
    """One line, shown by `fulltilt techniques`."""
    options: type
    """Frozen keyword-only dataclass; every field has a default and a type pydantic can check."""
    stage: Stage
    numerics: Numerics
    apply: str
    """"package.module:function", imported in the worker only; called as function(site, options)."""
    candidates: Callable[[MachineRecord, SiteRecord, PhaseRecord], tuple[Any, ...]] = _no_candidates
    """The option sets worth trying here, most promising first; instances of `options`."""
    unavailable: Callable[[MachineRecord, SiteRecord | None], str | None] = _always_available
    """Why it cannot be used on this machine, or (when a site is given) on this script; None when it can."""
    bound: Callable[[PhaseRecord, SiteRecord], float] = _no_bound
    """The most it could gain, as a ratio of speeds, from the measured phases."""
    rounding: Callable[[Any], float] = field(default=lambda options: FLOAT32_SUMS)
    """Relative rounding of the technique under these options: the size of the rounding envelope."""
    changes_draws: bool = False
    """It may legitimately draw other random numbers; its verdict then uses the sampling envelope. Where a site asks it
    to (`Site.tie_draws`), it must draw those of the untouched script, so that the rest of its numbers can be seen."""
    after: tuple[str, ...] = ()
    """Techniques of the same stage that must be applied before this one."""
    conflicts: tuple[str, ...] = ()

    def load_apply(self) -> Callable[[Site, Any], Applied | NoEffect]:
        """Import the worker's half. Needs torch."""
        module_name, _, function_name = self.apply.partition(":")
        function: Callable[[Site, Any], Applied | NoEffect] = getattr(
            importlib.import_module(module_name), function_name
        )
        return function
