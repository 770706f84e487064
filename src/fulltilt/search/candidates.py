"""Which techniques with which options are worth a trial here, in which order, and which are not and why."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from fulltilt.records.record import PhaseRecord, SiteRecord
from fulltilt.records.request import TechniqueChoice
from fulltilt.records.result import MachineRecord, TechniqueResult
from fulltilt.records.words import Numerics, TechniqueOutcome
from fulltilt.technique import Spec

MIN_BOUND = 1.01
"""A technique that could gain less than one per cent at best is not tried."""
_UNBOUNDED = 3.0
"""Stands for "no bound known" when candidates are put in order."""


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Candidate:
    """A technique with options to try."""

    spec: Spec
    options: Any
    bound: float
    setting: int = 0
    """0 for the most promising options of the technique, 1 for the next, ..."""

    @property
    def choice(self) -> TechniqueChoice:
        return TechniqueChoice(name=self.spec.name, options=non_default(self.options))


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Selection:
    """What to try, in order, and what not to."""

    candidates: tuple[Candidate, ...]
    left_out: tuple[TechniqueResult, ...]


def select(
    specs: Sequence[Spec], *, machine: MachineRecord, site: SiteRecord, phases: PhaseRecord, allow_lossy: bool = False
) -> Selection:
    """First settings before second ones, then by falling bound; the order of `specs` decides between equals."""
    candidates: list[Candidate] = []
    left_out: list[TechniqueResult] = []
    for spec in specs:
        bound = spec.bound(phases, site)
        reason, outcome = _reason_against(spec, machine, site, bound, allow_lossy)
        option_sets = () if reason else spec.candidates(machine, site, phases)
        if reason or not option_sets:
            left_out.append(
                TechniqueResult(
                    name=spec.name, options={}, outcome=outcome, reason=reason or "nothing to try on this script"
                )
            )
        candidates += [
            Candidate(spec=spec, options=options, bound=bound, setting=setting)
            for setting, options in enumerate(option_sets)
        ]
    order = {spec.name: index for index, spec in enumerate(specs)}
    candidates.sort(key=lambda c: (c.setting, -min(c.bound, _UNBOUNDED), order[c.spec.name]))
    return Selection(candidates=tuple(candidates), left_out=tuple(left_out))


def _reason_against(
    spec: Spec, machine: MachineRecord, site: SiteRecord, bound: float, allow_lossy: bool
) -> tuple[str, TechniqueOutcome]:
    reason = spec.unavailable(machine, site)
    if reason:
        return reason, TechniqueOutcome.REFUSED
    if spec.numerics is Numerics.LOSSY and not allow_lossy:
        return "it changes what is learnt, and that was not allowed", TechniqueOutcome.REFUSED
    if bound < MIN_BOUND:
        return "it could gain less than 1 %, by the measured phases", TechniqueOutcome.NO_GAIN
    return "", TechniqueOutcome.REFUSED


def non_default(options: Any) -> dict[str, Any]:
    """The fields of an options dataclass that differ from their default."""
    return {
        field.name: getattr(options, field.name)
        for field in dataclasses.fields(options)
        if getattr(options, field.name) != field.default
    }
