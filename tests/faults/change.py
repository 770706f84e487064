"""A change that is made to a training script: a fault to be refused, or something harmless to be kept.

Each is a technique in the smallest: a function that is applied at a stage, with the class that it claims.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fulltilt.records.words import Numerics
from fulltilt.technique import FLOAT32_SUMS, Applied, Spec, Stage

SCRIPTS = Path(__file__).parent / "scripts"
BFLOAT16, FLOAT16 = 2.0**-8, 2.0**-11


@dataclasses.dataclass(frozen=True, kw_only=True)
class NoOptions:
    pass


@dataclasses.dataclass(frozen=True, kw_only=True)
class Change:
    """One change, and what is expected of its verdict."""

    name: str
    summary: str
    script: str
    apply: Callable[[Any], None]
    stage: Stage
    numerics: Numerics = Numerics.ROUNDING
    rounding: float = FLOAT32_SUMS
    changes_draws: bool = False
    arguments: tuple[str, ...] = ()
    num_steps: int = 8
    shown_by: tuple[str, ...] = ()
    """Kinds of evidence, one of which must speak against it; for faults."""
    names: str = ""
    """What the sentences against it must name: a parameter, a buffer, a step; for faults."""

    def technique(self, site: Any, options: NoOptions) -> Applied:
        """The worker's half, as a technique's `apply` is called."""
        self.apply(site)
        return Applied(detail=self.summary)

    @property
    def command(self) -> tuple[str, ...]:
        return (str(SCRIPTS / f"{self.script}.py"), *self.arguments)

    @property
    def spec(self) -> Spec:
        return Spec(
            name=self.name,
            summary=self.summary,
            options=NoOptions,
            stage=self.stage,
            numerics=self.numerics,
            apply=f"faults.gallery:{self.name}",
            rounding=lambda options: self.rounding,
            changes_draws=self.changes_draws,
        )


SEEDS = range(5)

FAULTS: dict[str, Change] = {}
HARMLESS: dict[str, Change] = {}


def fault(script: str, *, shown_by: str | tuple[str, ...], names: str, **more: Any) -> Callable[[Any], Any]:
    """Registers the decorated function as a fault; its docstring is the summary."""
    kinds = (shown_by,) if isinstance(shown_by, str) else shown_by
    return _register(FAULTS, script, shown_by=kinds, names=names, **more)


def harmless(script: str, **more: Any) -> Callable[[Any], Any]:
    """Registers the decorated function as harmless in the class that it claims."""
    return _register(HARMLESS, script, **more)


def _register(gallery: dict[str, Change], script: str, **more: Any) -> Callable[[Any], Any]:
    def decorate(function: Any) -> Any:
        name = function.__name__
        assert name not in FAULTS
        assert name not in HARMLESS
        change = Change(
            name=name,
            summary=" ".join((function.__doc__ or "").split()),
            script=script,
            apply=function,
            **{"stage": Stage.MODEL, **more},
        )
        gallery[name] = change
        return function

    return decorate
