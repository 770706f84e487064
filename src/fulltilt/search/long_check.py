"""`fulltilt tune --verify`: trains a command to the end, as it is and under a recipe, with several seeds, and compares.

One run at a time, A and B in turn; every finished run goes into the journal and is never repeated.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
from collections.abc import Sequence
from pathlib import Path

from fulltilt.hardware.machine import with_environment
from fulltilt.measure.bands import bands_of
from fulltilt.measure.long_check import judge_runs
from fulltilt.measure.printouts import names_left_out, printed_series
from fulltilt.measure.run_failures import GOOD_ENDS, Pair, failures
from fulltilt.measure.thinning import thinned
from fulltilt.records.codec import to_plain
from fulltilt.records.long_run import LongCheckResult, LongCheckRun, RunRecord
from fulltilt.records.record import AppliedRecord
from fulltilt.records.request import EvidenceRequest
from fulltilt.records.result import MachineRecord
from fulltilt.records.words import Outcome, Role
from fulltilt.search.budget import Budget
from fulltilt.search.failures import command_failed
from fulltilt.search.processes import Choices
from fulltilt.search.progress import Progress
from fulltilt.trials.contract import Ended, Executor, LiveTrial, TrialPlan
from fulltilt.trials.journal import Journal

NUDGES = (2.0**-20, 2.0**-7)
"""Noise on the initial weights, where seeds change nothing: the rounding of a few float32 operations; where the weights
are stored too coarsely for that, of bfloat16."""

_RUN_AGAIN = (Outcome.HANG, Outcome.OUT_OF_BUDGET, Outcome.NOT_STARTED)
"""Ends that say nothing of the recipe: not journaled, so that a second attempt tries again."""
_SEED_STRIDE = 1_000_003
_MOST_OUTPUT_CHARACTERS = 100_000_000


class OutOfTime(Exception):
    """The budget has ended."""


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class LongCheckPlan:
    """What is asked."""

    recipe: Choices
    num_steps: int
    num_runs: int
    seed: int = 0
    margin: float | None = None


class LongCheck:
    """One check. `run()` fills in as it goes, so that `result()` can be asked for at any moment."""

    def __init__(
        self,
        plan: LongCheckPlan,
        *,
        command: Sequence[str],
        machine: MachineRecord,
        executor: Executor,
        journal: Journal,
        directory: Path,
        budget: Budget,
        progress: Progress,
    ) -> None:
        self._plan, self._command, self._machine = plan, tuple(command), machine
        self._executor, self._journal, self._directory = executor, journal, directory
        self._budget, self._progress = budget, progress
        self._pairs: list[Pair] = []
        self._runs: list[tuple[str, RunRecord]] = []
        self._notes: list[str] = []
        self._nudge = 0.0
        self._seconds_of_a_run = 0.0
        """Of the last one: what is left of the budget must be enough for another."""
        self._finished = False

    def run(self) -> LongCheckResult:
        """All runs that are asked, or as many as the budget allows.

        Raises:
            CommandFailed: the command fails, or never trains, without the recipe.
            StorageError: a run cannot be recorded.
        """
        self._progress.stage(
            f"training {self._plan.num_runs} times as it is and under the recipe, {self._plan.num_steps} steps"
        )
        try:
            for number in range(self._plan.num_runs):
                self._run_pair(number)
                if failures(self._pairs):
                    break  # nothing that comes later makes that right
            self._finished = True
        except OutOfTime:
            self._notes.append(
                "The budget ended before all runs were made; go on with the same --out and a larger one."
            )
        return self.result()

    @property
    def has_something_to_tell(self) -> bool:
        return bool(self._runs)

    def _run_pair(self, number: int) -> None:
        a = self._run("a", (), number)
        while number and self._is_no_news(a) and self._nudge_more():
            self._runs.pop()
            a = self._run("a", (), number)
        if a.outcome not in GOOD_ENDS or a.curve is None or not a.curve.num_steps:
            if number == 0:
                self._runs.pop()
                raise command_failed(Ended(outcome=a.outcome, message=a.message, exit_status=a.exit_status))
            self._notes.append(f"With seed {a.seed} the command fails by itself, so that pair is left out: {a.message}")
            return
        self._pairs.append((a, self._run("b", self._plan.recipe, number)))

    def _is_no_news(self, run: RunRecord) -> bool:
        """Is it the very run that another seed has given?"""
        return any(
            a.curve is not None and run.curve is not None and a.curve.losses == run.curve.losses for a, _ in self._pairs
        )

    def _nudge_more(self) -> bool:
        larger = [nudge for nudge in NUDGES if nudge > self._nudge]
        if not larger:
            self._notes.append(
                "Every run of the command is the same, whatever the seed, and whatever its weights begin at."
            )
            return False
        if not self._nudge:
            self._notes.append(
                "The command resists other seeds: two runs of it are the same to the last bit. So more runs begin with "
                "weights that differ in their last bits, and the spread between runs is that of rounding alone."
            )
        self._nudge = larger[0]
        return True

    def _run(self, arm: str, techniques: Choices, number: int) -> RunRecord:
        seed = self._plan.seed + number
        key = self._key(arm, techniques, seed)
        name = "as it is" if arm == "a" else "under the recipe"
        self._progress.trying(f"{name}, seed {seed}", done=len(self._runs), total=2 * self._plan.num_runs)
        run = self._journal.runs.get(key) or self._make(key, techniques, seed)
        self._runs.append((arm, run))
        return run

    def _key(self, arm: str, techniques: Choices, seed: int) -> str:
        parts = [
            f"long-{arm}",
            *([_digest(techniques)] if arm == "b" else []),
            f"{self._plan.num_steps}-steps",
            f"seed-{seed}",
        ]
        return "-".join([*parts, *([f"nudge-{-math.frexp(self._nudge)[1] + 1}"] if self._nudge else [])])

    def _make(self, key: str, techniques: Choices, seed: int) -> RunRecord:
        if self._budget.remaining <= self._seconds_of_a_run:
            raise OutOfTime
        begun = self._executor.now()
        request = EvidenceRequest(
            num_steps=self._plan.num_steps,
            reseed=seed * _SEED_STRIDE % 2**31,
            perturb_relative=self._nudge,
            perturb_seed=seed,
            whole_curve=True,
        )
        role = Role.CANDIDATE if techniques else Role.BASELINE
        live = self._executor.start(TrialPlan(trial=key, role=role, techniques=techniques, evidence=request))
        live.wait_ready(self._budget.deadline)
        output = self._output_of(key)  # the trial keeps only its end
        run = _record_of(live, key, seed=seed, request=request, output=output)
        self._seconds_of_a_run = self._executor.now() - begun
        if run.outcome is Outcome.OUT_OF_BUDGET:
            raise OutOfTime
        if run.outcome not in _RUN_AGAIN:
            self._journal.append(run)
        return run

    def _output_of(self, trial: str) -> list[str]:
        try:
            with (self._directory / "trials" / trial / "output.log").open(
                encoding="utf-8", errors="replace", newline="\n"
            ) as file:
                return file.readlines(_MOST_OUTPUT_CHARACTERS)
        except OSError:
            return []

    def result(self) -> LongCheckResult:
        """What is known now."""
        verdict = judge_runs(self._pairs, margin=self._plan.margin)
        runs = tuple(_for_table(arm, run) for arm, run in self._runs)
        environment = next((run.environment for _, run in self._runs if run.environment is not None), None)
        applied = next((run.applied for arm, run in self._runs if arm == "b"), ())
        idle = _idle_words(applied)
        return LongCheckResult(
            command=self._command,
            recipe=self._plan.recipe,
            num_steps_asked=self._plan.num_steps,
            num_runs_asked=self._plan.num_runs,
            judgement=verdict.judgement,
            summary=verdict.summary,
            series=verdict.series,
            runs=runs,
            bands=bands_of(self._pairs),
            machine=with_environment(self._machine, environment) if environment is not None else self._machine,
            finished=self._finished,
            nudge=self._nudge,
            margin_asked=self._plan.margin,
            applied=applied,
            not_judged=verdict.not_judged,
            notes=(*self._notes, *idle, *verdict.failures[1:]),
            wall_seconds=sum(run.wall_seconds for run in runs),
        )


def _record_of(live: LiveTrial, key: str, *, seed: int, request: EvidenceRequest, output: Sequence[str]) -> RunRecord:
    closed = live.close()
    record = live.record
    return RunRecord(
        key=key,
        techniques=closed.techniques,
        seed=seed,
        nudge=request.perturb_relative,
        num_steps_asked=request.num_steps,
        outcome=closed.outcome,
        message=closed.message,
        exit_status=closed.exit_status,
        curve=thinned(record.curve) if record is not None and record.curve is not None else None,
        printed=printed_series(output),
        left_out=names_left_out(output),
        applied=record.applied if record is not None else (),
        environment=record.environment if record is not None else None,
        wall_seconds=closed.wall_seconds,
    )


def _for_table(arm: str, run: RunRecord) -> LongCheckRun:
    losses = next(iter(run.curve.losses.values()), ()) if run.curve is not None else ()
    tail = losses[-max(1, len(losses) // 20) :]
    return LongCheckRun(
        arm=arm,
        seed=run.seed,
        outcome=run.outcome,
        message=run.message,
        num_steps=run.curve.num_steps if run.curve is not None else 0,
        wall_seconds=run.wall_seconds,
        final_loss=sum(tail) / len(tail) if tail else None,
    )


def _idle_words(applied: Sequence[AppliedRecord]) -> list[str]:
    """A recipe that did nothing is equivalent, and that is nothing to rely on."""
    idle = [f"{record.name} ({record.detail})" for record in applied if record.outcome != "applied"]
    if not idle:
        return []
    whole = len(idle) == len(applied)
    return [f"{'The recipe' if whole else 'A part of the recipe'} did nothing here: {'; '.join(idle)}."]


def _digest(techniques: Choices) -> str:
    return hashlib.sha256(json.dumps(to_plain(techniques), sort_keys=True).encode()).hexdigest()[:8]
