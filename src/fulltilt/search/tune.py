"""The search, top to bottom: know the command, try candidates, take the winner apart, confirm it, say what came out."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

from fulltilt.errors import CommandFailed
from fulltilt.hardware.machine import with_environment
from fulltilt.measure.breakeven import break_even_steps
from fulltilt.records.journal import ComparisonRecord, SpeedupInterval, VerdictRecord
from fulltilt.records.record import Evidence, PhaseRecord, SiteRecord, WorkerRecord
from fulltilt.records.request import EvidenceRequest
from fulltilt.records.result import (
    AblationResult,
    MachineRecord,
    RecipeResult,
    TechniqueResult,
    TuneResult,
)
from fulltilt.records.words import Numerics, Outcome, Role, TechniqueOutcome
from fulltilt.search.candidates import select
from fulltilt.search.climb import climb, comparison_key
from fulltilt.search.confirm import ablate, confirm, confirmation_seconds, members_not_seen_again, members_that_hurt
from fulltilt.search.examine import Examination, examination_seconds, examine, joined, steps_to_examine
from fulltilt.search.failures import command_failed
from fulltilt.search.fingerprint import fingerprint_of
from fulltilt.search.laboratory import MIN_BLOCKS, Laboratory
from fulltilt.search.pace import MIN_TOTAL_STEPS, PROFILE_STEPS, opening_pace
from fulltilt.search.pairs import Challenge
from fulltilt.search.processes import Choices
from fulltilt.search.progress import Progress
from fulltilt.search.verdicts import Judge, own_rounding
from fulltilt.technique import Spec
from fulltilt.units import format_seconds

UNMOVED = SpeedupInterval(median=1.0, low=1.0, high=1.0, confidence=0.95, num_pairs=0, num_blocks=0)
"""The speed-up of an empty recipe: none, by definition and without measurement."""


@dataclasses.dataclass
class Findings:
    """What a tune knows so far; a result can be made of it at any moment."""

    command: tuple[str, ...]
    machine: MachineRecord
    baseline: WorkerRecord | None = None
    recipe: Choices = ()
    techniques: list[TechniqueResult] = dataclasses.field(default_factory=list)
    uncertain: frozenset[str] = frozenset()
    ablation: tuple[AblationResult, ...] = ()
    examination: Examination | None = None
    confirmation: ComparisonRecord | None = None
    warnings: list[str] = dataclasses.field(default_factory=list)
    break_even: int | None = None


class Tune:
    """One search. `run()` fills `findings` as it goes, so that an interruption loses nothing."""

    def __init__(
        self,
        *,
        command: Sequence[str],
        machine: MachineRecord,
        specs: Sequence[Spec],
        laboratory: Laboratory,
        progress: Progress,
        allow_lossy: bool = False,
    ) -> None:
        self._specs = {spec.name: spec for spec in specs}
        self._laboratory, self._progress, self._allow_lossy = laboratory, progress, allow_lossy
        self.findings = Findings(command=tuple(command), machine=machine)

    def run(self) -> TuneResult:
        """The whole search.

        Raises:
            CommandFailed: when the command fails by itself, or never trains.
        """
        baseline = self._know_the_command()
        total_steps = self._laboratory.total_steps
        if total_steps is not None and total_steps < MIN_TOTAL_STEPS:
            self._too_short(total_steps)
            return self.result()
        evidence, site, phases = _seen(baseline)
        self._warn_of_numbers_that_are_not_finite(baseline)
        judge = Judge(self._laboratory, evidence, self._specs.__getitem__, own_rounding=own_rounding(site))
        self._measure_noise(judge)
        self._try_candidates(judge, site, phases)
        if self.findings.recipe:
            self._take_apart()
        if self.findings.recipe:
            self._examine(judge, own_rounding(site))
        if self.findings.recipe:
            self._confirm(judge)
        return self.result()

    def _know_the_command(self) -> WorkerRecord:
        self._progress.stage("running the command as it is")
        laboratory = self._laboratory
        record = laboratory.record_of(
            "baseline",
            Role.BASELINE,
            evidence=EvidenceRequest(num_steps=laboratory.pace.evidence_steps),
            profile_steps=PROFILE_STEPS,
        )
        laboratory.settle_pace(record)
        total_steps = laboratory.total_steps
        if total_steps is not None and total_steps >= MIN_TOTAL_STEPS and not self._fits_the_pace(record):
            record = self._know_a_short_command(total_steps)
        self.findings.baseline = record
        self.findings.machine = with_environment(self.findings.machine, record.environment)
        return record

    def _fits_the_pace(self, record: WorkerRecord) -> bool:
        """Was everything recorded, over as many steps as will be recorded of candidates?"""
        steps = record.evidence.num_steps if record.evidence is not None else 0
        return record.phases is not None and steps == self._laboratory.pace.evidence_steps

    def _know_a_short_command(self, total_steps: int) -> WorkerRecord:
        """The run has few steps: ask again with fewer for each part."""
        pace = opening_pace(total_steps)
        again = self._laboratory.record_of(
            "baseline-short",
            Role.BASELINE,
            evidence=EvidenceRequest(num_steps=pace.evidence_steps),
            profile_steps=pace.profile_steps,
        )
        self._laboratory.settle_pace(again)
        if again.phases is None:
            raise command_failed(None)
        return again

    def _too_short(self, num_steps: int) -> None:
        self.findings.warnings.append(
            f"The command makes only {num_steps} training steps; {MIN_TOTAL_STEPS} are needed to compare anything. "
            "Let it train longer (more epochs or steps) and tune again."
        )
        self.findings.techniques = [
            TechniqueResult(name=name, options={}, outcome=TechniqueOutcome.UNTRIED, reason="the run is too short")
            for name in self._specs
        ]

    def _warn_of_numbers_that_are_not_finite(self, baseline: WorkerRecord) -> None:
        """A command that learns nothing as it is cannot show what a technique spoils."""
        where = _not_finite_by_itself(baseline)
        if where:
            self.findings.warnings.append(
                f"The command's own numbers are not finite, without any technique: {where}. "
                "From there on nothing is learnt, and no technique can be judged: mend that first."
            )

    def _measure_noise(self, judge: Judge) -> None:
        """The command against itself: what a difference must exceed here."""
        self._progress.stage("running it again, for its own noise in time and numbers")
        laboratory = self._laboratory
        record = self._compare_with_itself("aa")
        if record.failure and record.failure_outcome is not Outcome.OUT_OF_BUDGET:
            self.findings.warnings.append(
                "Two copies of this command cannot be alive at once, so whole runs were alternated instead of steps; "
                f"intervals are wider for it. The second copy said: {record.failure}"
            )
            laboratory.run_one_at_a_time()
            record = self._compare_with_itself("aa, one at a time")
        laboratory.dismiss()
        judge.repeat()
        laboratory.aa_pairs = list(record.pairs)

    def _compare_with_itself(self, purpose: str) -> ComparisonRecord:
        trial = "repeat" if purpose == "aa" else "repeat-alone"
        return self._laboratory.compare(
            Challenge(key=comparison_key(purpose, (), ()), a=(), b=(), b_trial=trial, b_role=Role.REPEAT)
        )

    def _try_candidates(self, judge: Judge, site: SiteRecord, phases: PhaseRecord) -> None:
        findings = self.findings
        selection = select(
            list(self._specs.values()),
            machine=findings.machine,
            site=site,
            phases=phases,
            allow_lossy=self._allow_lossy,
        )
        findings.techniques = list(selection.left_out)
        for result in selection.left_out:
            self._progress.found(result)
        reserve = min(self._seconds_to_finish(), 0.5 * self._laboratory.budget.seconds)
        self._progress.stage(f"trying {len(selection.candidates)} candidates")
        tracker = _Tracker(self._progress, findings)
        climbed = climb(
            selection.candidates,
            laboratory=self._laboratory,
            judge=judge,
            progress=tracker,
            reserve_seconds=reserve,
        )
        findings.recipe, findings.uncertain = climbed.recipe, climbed.uncertain
        findings.techniques = [*climbed.results, *selection.left_out]

    def _take_apart(self) -> None:
        reserve = self._seconds_to_finish()
        self.findings.ablation = ablate(
            self.findings.recipe, laboratory=self._laboratory, progress=self._progress, reserve_seconds=reserve
        )
        hurting = members_that_hurt(self.findings.ablation)
        if hurting:
            self._drop(hurting, "the recipe is faster without it (ablation)")
        lucky = members_not_seen_again(self.findings.ablation, self.findings.uncertain, self._laboratory.floor)
        if lucky:
            self._drop(lucky, "its gain, which chance could explain (Holm), did not show a second time (ablation)")

    def _seconds_to_finish(self) -> float:
        return examination_seconds(self._laboratory) + confirmation_seconds(self._laboratory)

    def _examine(self, judge: Judge, own_rounding: float) -> None:
        """The recipe's numbers over more steps; members that do not stand it go."""
        findings, laboratory = self.findings, self._laboratory
        self._progress.stage(f"judging the recipe's numbers over {steps_to_examine(laboratory)} steps")
        examination = examine(
            findings.recipe,
            laboratory=laboratory,
            judge=judge,
            spec_of=self._specs.__getitem__,
            own_rounding=own_rounding,
        )
        findings.examination = examination
        for member, reason in examination.broken:
            self._drop({member.name}, f"over {examination.num_steps} steps, {reason}", TechniqueOutcome.BROKE_NUMERICS)
        if examination.problem:
            steps = laboratory.pace.evidence_steps
            findings.warnings.append(f"The recipe's numbers were judged by {steps} steps only: {examination.problem}")

    def _confirm(self, judge: Judge) -> None:
        self._progress.stage("confirming the winner in fresh processes")
        findings, laboratory = self.findings, self._laboratory
        record = confirm(findings.recipe, laboratory=laboratory, judge=judge)
        findings.confirmation = record
        problem = _unconfirmed(record, laboratory.floor)
        if problem:
            findings.warnings.append(
                f"The best recipe was not confirmed by fresh processes, so none is given: {problem}"
            )
            self._drop({choice.name for choice in findings.recipe}, f"not confirmed: {problem}")
            return
        findings.break_even = self._break_even(record)
        self._warn_of_a_run_too_short_to_pay()

    def _warn_of_a_run_too_short_to_pay(self) -> None:
        break_even, total_steps = self.findings.break_even, self._laboratory.total_steps
        if break_even is not None and total_steps is not None and break_even > total_steps:
            self.findings.warnings.append(
                f"This run makes {total_steps} steps and the recipe's slower start is paid back after {break_even}: "
                f"use the recipe for runs of more than {break_even} steps."
            )

    def _drop(self, names: set[str], reason: str, outcome: TechniqueOutcome = TechniqueOutcome.NO_GAIN) -> None:
        findings = self.findings
        findings.recipe = tuple(choice for choice in findings.recipe if choice.name not in names)
        findings.techniques = [
            dataclasses.replace(result, outcome=outcome, reason=reason)
            if result.name in names and result.outcome is TechniqueOutcome.KEPT
            else result
            for result in findings.techniques
        ]

    def _break_even(self, record: ComparisonRecord) -> int | None:
        laboratory = self._laboratory
        with_recipe = laboratory.excess_seconds(self.findings.recipe)
        without = laboratory.excess_seconds(())
        if with_recipe is None or without is None or record.speedup is None:
            return None
        plain = laboratory.step_seconds
        return break_even_steps(plain, plain / record.speedup.median, max(0.0, with_recipe - without))

    def result(self, *, finished: bool = True) -> TuneResult:
        """The result of what is known now.

        Raises:
            CommandFailed: when not even the untouched command is known.
        """
        findings, laboratory = self.findings, self._laboratory
        if findings.baseline is None:
            raise CommandFailed("interrupted before the command's first steps were seen")
        confirmed = findings.confirmation is not None and bool(findings.recipe)
        recipe = findings.recipe if confirmed else ()
        confirmation = findings.confirmation if confirmed else None
        return TuneResult(
            command=findings.command,
            machine=findings.machine,
            baseline_step_seconds=laboratory.step_seconds,
            speedup=(confirmation.speedup if confirmation else None) or UNMOVED,
            verdict=(joined(confirmation.verdict, findings.examination) if confirmation else None)
            or VerdictRecord(numerics=Numerics.EXACT, kept=True, evidence=("Nothing is changed.",)),
            recipe=RecipeResult(
                techniques=recipe,
                fingerprint=fingerprint_of(findings.command, findings.machine, findings.baseline.site),
            ),
            techniques=tuple(findings.techniques),
            ablation=findings.ablation,
            break_even_steps=findings.break_even if recipe else None,
            trials=laboratory.trials,
            wall_seconds=laboratory.budget.spent,
            summary=self._summary(recipe, confirmation, finished),
            phases=findings.baseline.phases,
            site=findings.baseline.site,
            aa_floor=laboratory.floor,
            confirmed=confirmed,
            finished=finished and all(result.outcome is not TechniqueOutcome.UNTRIED for result in findings.techniques),
            protection=laboratory.protection,
            warnings=tuple(findings.warnings),
            details={
                "total_steps": laboratory.total_steps,
                "block_steps": laboratory.pace.block_steps,
                "judged_steps": findings.examination.num_steps if findings.examination else None,
            },
        )

    def _summary(self, recipe: Choices, confirmation: ComparisonRecord | None, finished: bool) -> str:
        step = format_seconds(self._laboratory.step_seconds) if self._laboratory.step_seconds else "unknown"
        if confirmation is not None and confirmation.speedup is not None:
            interval = confirmation.speedup
            names = " + ".join(choice.name for choice in recipe)
            return (
                f"{names}: {interval.median:.2f}x faster [{interval.low:.2f}, {interval.high:.2f}] than a step of "
                f"{step}, numbers kept."
            )
        if not finished:
            return f"Interrupted before a recipe was confirmed; a step takes {step} as it is."
        if self.findings.warnings:
            return self.findings.warnings[-1]
        return f"Nothing that was tried makes this command faster; a step takes {step} as it is."


class _Tracker:
    """Passes progress on, and keeps what is found where an interruption will find it."""

    def __init__(self, progress: Progress, findings: Findings) -> None:
        self._progress, self._findings = progress, findings
        self.stage, self.trying, self.tick, self.note = (
            progress.stage,
            progress.trying,
            progress.tick,
            progress.note,
        )

    def found(self, result: TechniqueResult) -> None:
        self._findings.techniques.append(result)
        self._progress.found(result)


def _seen(baseline: WorkerRecord) -> tuple[Evidence, SiteRecord, PhaseRecord]:
    if baseline.evidence is None or baseline.site is None or baseline.phases is None:
        raise command_failed(None)
    return baseline.evidence, baseline.site, baseline.phases


def _not_finite_by_itself(baseline: WorkerRecord) -> str:
    """From where on; empty when all that was seen is finite."""
    losses = baseline.evidence.losses if baseline.evidence is not None else ()
    for step, values in enumerate(losses, 1):
        if not all(map(math.isfinite, values)):
            return f"the loss of step {step} is {next(value for value in values if not math.isfinite(value))}"
    if baseline.not_finite_steps is not None:
        first, last = baseline.not_finite_steps
        return f"weights became nan or infinite in steps {first} to {last}"
    return ""


def _unconfirmed(record: ComparisonRecord, floor: float) -> str:
    """Why the confirmation does not confirm; empty when it does."""
    if record.failure:
        return record.failure
    if record.no_effect:
        return record.no_effect
    if record.verdict is not None and not record.verdict.kept:
        return "; ".join(record.verdict.broken[:2])
    if record.speedup is not None and record.speedup.num_blocks < MIN_BLOCKS:
        return "the budget ended before that; go on with the same --out and a larger --budget"
    if record.verdict is None:
        return "its numbers were not judged"
    if record.speedup is None or record.speedup.low <= 1.0 or record.speedup.median <= 1.0 + floor:
        return "the gain is within what restarts of the same command differ by"
    return ""
