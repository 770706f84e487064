"""Judges the numbers of a recipe, running the envelopes that its class needs when they are first needed."""

from __future__ import annotations

from collections.abc import Callable

from fulltilt.numerics.verdict import judge
from fulltilt.records.journal import VerdictRecord
from fulltilt.records.record import Evidence, SiteRecord, WorkerRecord
from fulltilt.records.request import EvidenceRequest, TechniqueChoice
from fulltilt.records.words import Numerics, Role
from fulltilt.search.laboratory import Laboratory
from fulltilt.search.processes import Choices
from fulltilt.technique import Spec

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
    ) -> None:
        self._laboratory, self._baseline, self._spec_of = laboratory, baseline, spec_of
        self._own_rounding = own_rounding
        """Of the script itself: an envelope narrower than this would perturb nothing."""
        self._records: dict[str, Evidence] = {}

    def repeat(self) -> Evidence:
        """The untouched command once more."""
        trial = "repeat-alone" if self._laboratory.one_at_a_time else "repeat"
        return self._evidence(trial, Role.REPEAT, self._laboratory.evidence_request())

    def prepare(self, choices: Choices) -> None:
        """Run the envelopes that judging `choices` will need, so that no other process is alive meanwhile."""
        self.repeat()
        if self._class_of(choices) is Numerics.ROUNDING:
            self._rounding(choices)
        if self._changes_draws(choices):
            self._sampling()

    def __call__(self, evidence: Evidence, choices: Choices) -> VerdictRecord:
        numerics = self._class_of(choices)
        changes_draws = self._changes_draws(choices)
        return judge(
            evidence,
            self._baseline,
            numerics=numerics,
            repeat=(self.repeat(),),
            rounding=self._rounding(choices) if numerics is Numerics.ROUNDING else (),
            sampling=self._sampling() if changes_draws else (),
            changes_draws=changes_draws,
        )

    def _class_of(self, choices: Choices) -> Numerics:
        classes = {self._spec_of(choice.name).numerics for choice in choices}
        for widest in (Numerics.LOSSY, Numerics.ROUNDING):
            if widest in classes:
                return widest
        return Numerics.EXACT

    def _changes_draws(self, choices: Choices) -> bool:
        return any(self._spec_of(choice.name).changes_draws for choice in choices)

    def _rounding(self, choices: Choices) -> tuple[Evidence, ...]:
        relative = max(self._own_rounding, *(self._relative_of(choice) for choice in choices))
        requested = self._laboratory.evidence_request().num_steps
        return tuple(
            self._evidence(
                f"rounding-{relative:.1e}-{seed}",
                Role.ROUNDING,
                EvidenceRequest(num_steps=requested, perturb_relative=relative, perturb_seed=seed),
            )
            for seed in range(1, _NUM_ROUNDING_RUNS + 1)
        )

    def _relative_of(self, choice: TechniqueChoice) -> float:
        spec = self._spec_of(choice.name)
        return spec.rounding(spec.options(**choice.options)) if spec.numerics is Numerics.ROUNDING else 0.0

    def _sampling(self) -> tuple[Evidence, ...]:
        requested = self._laboratory.evidence_request().num_steps
        return tuple(
            self._evidence(
                f"sampling-{number}", Role.SAMPLING, EvidenceRequest(num_steps=requested, reseed=_RESEED * number)
            )
            for number in (1, 2)
        )

    def _evidence(self, trial: str, role: Role, request: EvidenceRequest) -> Evidence:
        if trial not in self._records:
            record: WorkerRecord = self._laboratory.record_of(trial, role, evidence=request)
            assert record.evidence is not None
            self._records[trial] = record.evidence
        return self._records[trial]
