"""Judges the numbers of a recipe, running the envelopes that its class needs when they are first needed."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable

from fulltilt.numerics.envelope import rounding_unit
from fulltilt.numerics.thresholds import FLOAT32_ROUNDING
from fulltilt.numerics.verdict import class_of, judge
from fulltilt.records.journal import VerdictRecord
from fulltilt.records.record import Evidence, SiteRecord, WorkerRecord
from fulltilt.records.request import EvidenceRequest, TechniqueChoice
from fulltilt.records.words import Numerics, Role
from fulltilt.search.laboratory import Laboratory
from fulltilt.search.processes import Choices
from fulltilt.technique import FLOAT32_SUMS, Spec

_NUM_ROUNDING_RUNS = 2
_RESEED = 20_011


_ROUNDING_OF = {"bfloat16": 2.0**-8, "float16": 2.0**-11}


def own_rounding(site: SiteRecord | None) -> float:
    """Relative rounding of what the script computes in by itself, where that is less than float32."""
    if site is None:
        return 0.0
    dtypes = {dtype for module in site.modules for dtype in module.dtypes} | {site.autocast_by_user}
    return max((_ROUNDING_OF.get(dtype, 0.0) for dtype in dtypes), default=0.0)


class Judge:
    """Call it with the evidence of a run under `choices`; it compares with the baseline's."""

    def __init__(
        self,
        laboratory: Laboratory,
        baseline: Evidence,
        spec_of: Callable[[str], Spec],
        *,
        own_rounding: float = 0.0,
        num_steps: int | None = None,
    ) -> None:
        self._laboratory, self._baseline, self._spec_of = laboratory, baseline, spec_of
        self._own_rounding = own_rounding
        """Of the script itself: an envelope narrower than this would perturb nothing."""
        self._num_steps = num_steps
        """How many steps are judged; None for as many as a trial of the search records."""
        self._records: dict[str, Evidence] = {}

    @classmethod
    def over(
        cls,
        num_steps: int,
        laboratory: Laboratory,
        spec_of: Callable[[str], Spec],
        *,
        own_rounding: float = 0.0,
    ) -> Judge:
        """One that judges by more steps than a trial of the search records; runs the untouched command for them."""
        request = EvidenceRequest(num_steps=num_steps)
        record = laboratory.record_of(f"baseline-{num_steps}-steps", Role.REPEAT, evidence=request)
        assert record.evidence is not None
        return cls(laboratory, record.evidence, spec_of, own_rounding=own_rounding, num_steps=num_steps)

    def repeat(self) -> Evidence:
        """The untouched command once more."""
        trial = "repeat-alone" if self._laboratory.one_at_a_time else "repeat"
        return self._evidence(trial, Role.REPEAT, self._request())

    def prepare(self, choices: Choices) -> None:
        """Run the envelopes that judging `choices` will need, so that no other process is alive meanwhile."""
        self.repeat()
        if self._class_of(choices) is Numerics.ROUNDING:
            self._rounding(choices)
        if self.changes_draws(choices):
            self._sampling()

    def __call__(self, evidence: Evidence, choices: Choices) -> VerdictRecord:
        changes_draws = self.changes_draws(choices)
        return judge(
            evidence,
            self._baseline,
            numerics=self._class_of(choices),
            repeat=(self.repeat(),),
            rounding=self._rounding(choices),
            sampling=self._sampling() if changes_draws else (),
            changes_draws=changes_draws,
        )

    def changes_draws(self, choices: Choices) -> bool:
        """May any of them draw other random numbers?"""
        return any(self._spec_of(choice.name).changes_draws for choice in choices)

    def examine(self, choices: Choices) -> VerdictRecord:
        """Run the command under `choices` and judge its numbers by the rounding envelope, whatever it draws.

        Techniques that draw other random numbers are asked to draw those of the untouched command in this run, so that
        a fault cannot hide in the noise of other draws.

        Raises:
            EnvelopeFailed: when one of the runs fails.
        """
        request = dataclasses.replace(self._request(), tie_draws=self.changes_draws(choices))
        key = hashlib.sha256(repr(choices).encode()).hexdigest()[:8]
        names = "+".join(choice.name for choice in choices)[:60]
        evidence = self._evidence(f"examined-{names}-{key}", Role.EXAMINED, request, choices)
        return judge(
            evidence,
            self._baseline,
            numerics=self._class_of(choices),
            repeat=(self.repeat(),),
            rounding=self._rounding(choices),
        )

    def _request(self) -> EvidenceRequest:
        usual = self._laboratory.evidence_request()
        return usual if self._num_steps is None else dataclasses.replace(usual, num_steps=self._num_steps)

    def _class_of(self, choices: Choices) -> Numerics:
        return class_of(self._spec_of(choice.name).numerics for choice in choices)

    def _rounding(self, choices: Choices) -> tuple[Evidence, ...]:
        if self._class_of(choices) is not Numerics.ROUNDING:
            return ()
        relative = max(self._own_rounding, *(self._relative_of(choice) for choice in choices))
        return tuple(
            self._evidence(
                f"rounding-{relative:.1e}-{seed}",
                Role.ROUNDING,
                dataclasses.replace(self._request(), perturb_relative=relative, perturb_seed=seed),
            )
            for seed in range(1, _NUM_ROUNDING_RUNS + 1)
        )

    def _relative_of(self, choice: TechniqueChoice) -> float:
        """The rounding of a technique, in a script of float64 that of float64 where it claims no lower precision."""
        spec = self._spec_of(choice.name)
        if spec.numerics is not Numerics.ROUNDING:
            return 0.0
        relative = spec.rounding(spec.options(**choice.options))
        return relative * rounding_unit(self._baseline) / FLOAT32_ROUNDING if relative <= FLOAT32_SUMS else relative

    def _sampling(self) -> tuple[Evidence, ...]:
        return tuple(
            self._evidence(
                f"sampling-{number}", Role.SAMPLING, dataclasses.replace(self._request(), reseed=_RESEED * number)
            )
            for number in (1, 2)
        )

    def _evidence(self, trial: str, role: Role, request: EvidenceRequest, choices: Choices = ()) -> Evidence:
        if self._num_steps is not None:
            trial = f"{trial}-{self._num_steps}-steps"
        if trial not in self._records:
            record: WorkerRecord = self._laboratory.record_of(trial, role, evidence=request, techniques=choices)
            assert record.evidence is not None
            self._records[trial] = record.evidence
        return self._records[trial]
