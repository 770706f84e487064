"""Applies the techniques of a request, each at its stage, and keeps what became of them."""

from __future__ import annotations

import graphlib
from collections.abc import Callable, Sequence
from typing import Any

from fulltilt.records.record import AppliedRecord
from fulltilt.records.request import TechniqueChoice
from fulltilt.tap.site import SiteView
from fulltilt.technique import Applied, NoEffect, Spec, Stage
from fulltilt.techniques import spec_of

_NEVER = {
    Stage.DATA: "no DataLoader was iterated",
    Stage.MODEL: "no module was called with gradients enabled",
    Stage.LOSS: "no module was called with gradients enabled",
    Stage.COMPILE: "no module was called with gradients enabled",
    Stage.WRAP: "no module was called with gradients enabled",
    Stage.OPTIMIZER: "no torch.optim optimizer made a step",
    Stage.STEP: "no training step was seen",
}


class Applier:
    """One for each process."""

    def __init__(self, choices: Sequence[TechniqueChoice], find: Callable[[str], Spec] = spec_of) -> None:
        self._chosen = [(spec, spec.options(**choice.options)) for spec, choice in _in_order(choices, find)]
        self._results: dict[str, list[Applied | NoEffect]] = {spec.name: [] for spec, _ in self._chosen}
        self._failures: dict[str, str] = {}

    def __bool__(self) -> bool:
        return bool(self._chosen)

    def has_stage(self, *stages: Stage) -> bool:
        return any(spec.stage in stages for spec, _ in self._chosen)

    def apply(self, view: SiteView, *stages: Stage) -> None:
        """Apply the techniques of these stages to what is new in `view`. A failing technique is recorded."""
        for spec, options in self._chosen:
            if spec.stage in stages:
                self._apply_one(spec, options, view)

    def _apply_one(self, spec: Spec, options: Any, view: SiteView) -> None:
        try:
            self._results[spec.name].append(spec.load_apply()(view, options))
        except Exception as error:
            self._failures[spec.name] = f"{type(error).__name__}: {error}"
            view.note(f"{spec.name} failed and was left out: {type(error).__name__}: {error}")

    def outcomes(self) -> tuple[AppliedRecord, ...]:
        """What became of each technique, by its own proof."""
        return tuple(self._outcome(spec) for spec, _ in self._chosen)

    def _outcome(self, spec: Spec) -> AppliedRecord:
        if spec.name in self._failures:
            return AppliedRecord(name=spec.name, outcome="failed", detail=self._failures[spec.name])
        results = self._results[spec.name]
        if not results:
            return AppliedRecord(name=spec.name, outcome="pending", detail=_NEVER.get(spec.stage, "not reached"))
        applied = [result for result in results if isinstance(result, Applied)]
        proofs = [(result.detail, _proof(result)) for result in applied]
        engaged = [f"{detail} ({proof})" if proof else detail for detail, proof in proofs if proof is not None]
        if engaged:
            return AppliedRecord(name=spec.name, outcome="applied", detail="; ".join(dict.fromkeys(engaged)))
        reasons = [result.reason for result in results if isinstance(result, NoEffect)]
        reasons += [f"{detail}, but it never ran" for detail, _ in proofs]
        return AppliedRecord(name=spec.name, outcome="no_effect", detail="; ".join(dict.fromkeys(reasons)))


def _proof(result: Applied) -> str | None:
    """Evidence that it ran, "" where none is needed, None where it did not run."""
    return "" if result.engaged is None else result.engaged()


def _in_order(choices: Sequence[TechniqueChoice], find: Callable[[str], Spec]) -> list[tuple[Spec, TechniqueChoice]]:
    """By stage, then by what each names in `after`, then as written."""
    chosen = {choice.name: (find(choice.name), choice) for choice in choices}
    sorter = graphlib.TopologicalSorter(
        {name: [other for other in spec.after if other in chosen] for name, (spec, _) in chosen.items()}
    )
    position = {name: index for index, name in enumerate(sorter.static_order())}
    return sorted(chosen.values(), key=lambda pair: (pair[0].stage, position[pair[0].name]))
