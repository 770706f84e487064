"""`fulltilt compare`: two recipes of one command, in fresh pairs of processes, and a verdict on the second."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from fulltilt.errors import CommandFailed
from fulltilt.records.journal import ComparisonRecord
from fulltilt.records.record import SiteRecord
from fulltilt.records.request import EvidenceRequest
from fulltilt.records.words import Outcome, Role
from fulltilt.search.climb import comparison_key
from fulltilt.search.failures import command_failed
from fulltilt.search.laboratory import Laboratory
from fulltilt.search.pace import MIN_TOTAL_STEPS, PROFILE_STEPS
from fulltilt.search.pairs import Challenge
from fulltilt.search.processes import Choices
from fulltilt.search.progress import Progress
from fulltilt.search.verdicts import Judge, own_rounding
from fulltilt.technique import Spec


class Compare:
    """One comparison."""

    def __init__(self, *, laboratory: Laboratory, specs: Sequence[Spec], progress: Progress) -> None:
        self._laboratory, self._progress = laboratory, progress
        self._specs = {spec.name: spec for spec in specs}

    def run(self, a: Choices, b: Choices, *, pairs: int) -> ComparisonRecord:
        """B against A.

        Raises:
            CommandFailed: when the command does not come to train, or for too few steps.
        """
        laboratory = self._laboratory
        self._progress.stage("running the command as it is")
        baseline = laboratory.record_of(
            "baseline",
            Role.BASELINE,
            evidence=EvidenceRequest(num_steps=laboratory.pace.evidence_steps),
            profile_steps=PROFILE_STEPS,
        )
        laboratory.settle_pace(baseline)
        if baseline.evidence is None:
            raise command_failed(None)
        if laboratory.total_steps is not None and laboratory.total_steps < MIN_TOTAL_STEPS:
            raise CommandFailed(
                f"the command makes only {laboratory.total_steps} training steps; {MIN_TOTAL_STEPS} are needed",
                hint="Let it train longer: more epochs or steps.",
            )
        judge = self._judge(a, b, baseline.site)
        self._progress.stage(f"comparing, {pairs} pairs of processes")
        key = comparison_key(f"compare {pairs}", a, b)
        challenge = Challenge(key=key, a=a, b=b, max_pairs=pairs, fresh=True, judge=judge)
        record = laboratory.compare(challenge)
        if (
            record.failure and not record.in_turn and record.failure_outcome is not Outcome.NOT_FINITE
        ):  # two copies may fight for a port, or for memory
            laboratory.run_one_at_a_time()
            record = laboratory.compare(dataclasses.replace(challenge, key=f"{key} one at a time"))
        return record

    def _judge(self, a: Choices, b: Choices, site: SiteRecord | None) -> Judge | None:
        """Numbers are judged against the untouched command, so only where A is that and B is not."""
        if a or not b:
            return None
        known = self._laboratory.record_of("untouched", Role.BASELINE, evidence=self._laboratory.evidence_request())
        if known.evidence is None:
            return None
        judge = Judge(self._laboratory, known.evidence, self._specs.__getitem__, own_rounding=own_rounding(site))
        judge.prepare(b)
        return judge
