"""Asks questions of the user's command and remembers the answers: every trial and comparison is run once.

What is asked stands in the journal, with its answer; a resumed tune asks the same questions and gets the old answers.
"""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Sequence
from pathlib import Path

from fulltilt.measure.comparison import compare_pairs
from fulltilt.measure.floor import aa_floor
from fulltilt.records.codec import CodecError, from_json
from fulltilt.records.journal import ComparisonRecord, PairRecord, TrialRecord
from fulltilt.records.record import WorkerRecord
from fulltilt.records.request import EvidenceRequest
from fulltilt.records.result import ProtectionRecord
from fulltilt.records.words import Outcome, Role
from fulltilt.search.budget import Budget
from fulltilt.search.failures import GOOD_ENDS, EnvelopeFailed, command_failed, expect_room, say
from fulltilt.search.notes import Notes
from fulltilt.search.pace import Pace, measured_pace, opening_pace
from fulltilt.search.pairs import Challenge, Pairs, failed_technique, verdict_on, without_effect
from fulltilt.search.processes import Choices, Processes
from fulltilt.search.progress import Progress
from fulltilt.trials.contract import Ended, Executor, LiveTrial, Ready, TrialPlan
from fulltilt.trials.journal import Journal

_WORTH_ANOTHER_PAIR = 0.5
"""A gain of less than this share of its interval's half width would stay uncertain after three pairs, too."""


_ENDS_OF_THE_MOMENT = (Outcome.OUT_OF_BUDGET, Outcome.DISK_FULL, Outcome.NOT_STARTED)
"""These say nothing about the command: what ended so is asked again."""


MIN_BLOCKS = 6
"""A comparison with fewer blocks, because the budget ended, is not an answer."""


class Laboratory:
    """One for each tune. `close()` ends all processes."""

    def __init__(
        self,
        executor: Executor,
        journal: Journal,
        *,
        directory: Path,
        budget: Budget,
        progress: Progress,
        num_cpus: int,
    ) -> None:
        self._journal, self._directory = journal, directory
        self._notes = Notes(directory / "trials" / "pace.json")
        self._processes = Processes(executor, journal, budget=budget, progress=progress, notes=self._notes)
        self._pairs = Pairs(self._processes, num_cpus=num_cpus, floor=lambda: self.floor, note_end=self._note_end)
        self.aa_pairs: list[PairRecord] = []

    @property
    def budget(self) -> Budget:
        return self._processes.budget

    @property
    def pace(self) -> Pace:
        """The rhythm of all comparisons."""
        return self._processes.pace

    @property
    def total_steps(self) -> int | None:
        """Training steps of the whole run, where it was seen to end."""
        return self._notes.pacing.total_steps

    @property
    def step_seconds(self) -> float:
        """Of the untouched command."""
        return self._notes.pacing.step_seconds

    @property
    def seconds_to_ready(self) -> float:
        """From the start of the untouched command until its evidence was recorded."""
        return self._notes.pacing.seconds_to_ready

    @property
    def floor(self) -> float:
        """The relative difference under which nothing is claimed."""
        return aa_floor(self.aa_pairs)

    @property
    def comparison_seconds(self) -> float:
        """What a comparison takes, as the median of those made so far: a start alone before the first."""
        walls = [record.wall_seconds for record in self._journal.comparisons.values() if record.wall_seconds]
        return statistics.median(walls) if walls else self.seconds_to_ready

    @property
    def protection(self) -> ProtectionRecord | None:
        """What keeps trials from changing the user's files."""
        return self._processes.protection

    @property
    def one_at_a_time(self) -> bool:
        """Can no two copies of the command be alive at once?"""
        return self._notes.pacing.one_at_a_time

    @property
    def trials(self) -> tuple[TrialRecord, ...]:
        return tuple(self._journal.trials)

    def adopt(self) -> None:
        """The challenger of the last comparison has won."""
        self._processes.adopt()

    def dismiss(self) -> None:
        """The challenger of the last comparison is done with."""
        self._processes.dismiss()

    def release(self) -> None:
        """End both processes."""
        self._processes.release()

    def close(self) -> None:
        self._processes.close()

    # Questions about numbers

    def record_of(
        self,
        trial: str,
        role: Role,
        *,
        evidence: EvidenceRequest,
        profile_steps: int = 0,
        techniques: Choices = (),
    ) -> WorkerRecord:
        """What the command under `techniques` recorded, asked as `trial`: from the journal, or by running it.

        Raises:
            CommandFailed: when the command does not come to train as it is.
            EnvelopeFailed: when it does not come to train in another run, now or at an earlier time.
            StorageError: when there was no room for what it writes.
        """
        known = self._known_record(trial)
        if known is not None:
            return known
        known_failure = self._known_failure(trial)
        if known_failure is not None and role is not Role.BASELINE:  # a command that fails may have been mended
            raise EnvelopeFailed(trial, role, known_failure)
        if self.one_at_a_time:
            self._processes.release()
        plan = TrialPlan(trial=trial, role=role, techniques=techniques, evidence=evidence, profile_steps=profile_steps)
        live = self._processes.start(plan)
        ready = live.wait_ready(self._processes.patience())
        if isinstance(ready, Ready) and role is Role.BASELINE:
            self._measure_pace(live, ready)
        expect_room(live.ended)
        self._processes.end(live)
        record = live.record
        failed = isinstance(ready, Ended) and ready.outcome is not Outcome.ENDED
        if failed or record is None or record.evidence is None or not record.evidence.num_steps:
            ended = ready if isinstance(ready, Ended) else live.ended
            raise command_failed(ended) if role is Role.BASELINE else EnvelopeFailed(trial, role, ended)
        self._note_end(live.ended)
        return record

    def settle_pace(self, baseline: WorkerRecord) -> None:
        """Fix the rhythm of all comparisons, once the baseline is known."""
        if not self.step_seconds and baseline.phases is not None:
            self._notes.change(step_seconds=baseline.phases.step_seconds)
        if not self._notes.pacing.evidence_steps:
            self._notes.change(evidence_steps=opening_pace(self.total_steps).evidence_steps)
        self._settle()

    def _settle(self) -> None:
        """The pace follows from what is noted, so that a resumed tune goes on at the same."""
        opening = opening_pace(self.total_steps)
        evidence_steps = self._notes.pacing.evidence_steps or opening.evidence_steps  # as many as known records have
        self._processes.pace = measured_pace(
            dataclasses.replace(opening, evidence_steps=evidence_steps),
            step_seconds=max(self.step_seconds, 1e-6),
            budget_seconds=self.budget.seconds,
            total_steps=self.total_steps,
        )

    def evidence_request(self) -> EvidenceRequest:
        return EvidenceRequest(num_steps=self.pace.evidence_steps)

    def _measure_pace(self, live: LiveTrial, ready: Ready) -> None:
        """Run plain steps for two seconds or so: the time of a step, and whether the run ends."""
        self._notes.change(seconds_to_ready=ready.seconds_to_ready)
        num_steps, seconds = 1, 0.0
        while seconds < 2.0:
            block = live.run_block(num_steps, self._processes.patience())
            if isinstance(block, Ended):
                return
            seconds += block.seconds
            self._notes.change(step_seconds=block.seconds_per_step)
            num_steps = max(1, min(num_steps * 4, round(1.0 / max(block.seconds_per_step, 1e-6))))

    def _note_end(self, ended: Ended | None) -> None:
        if ended is None or ended.outcome is not Outcome.ENDED or not ended.num_steps:
            return
        is_news = self.total_steps is None and self.step_seconds > 0
        self._notes.change(total_steps=ended.num_steps)
        if is_news:
            self._settle()  # the run is shorter than blocks were planned for

    def _known_record(self, trial: str) -> WorkerRecord | None:
        if not any(known.trial == trial and known.outcome in GOOD_ENDS for known in self._journal.trials):
            return None
        try:
            text = (self._directory / "trials" / trial / "record.json").read_text(encoding="utf-8", errors="replace")
            return from_json(WorkerRecord, text)
        except (OSError, CodecError):
            return None

    def _known_failure(self, trial: str) -> Ended | None:
        failures = [known for known in self._journal.trials if known.trial == trial and known.outcome not in GOOD_ENDS]
        if not failures or failures[-1].outcome in _ENDS_OF_THE_MOMENT:
            return None
        return Ended(outcome=failures[-1].outcome, message=failures[-1].message)

    def run_one_at_a_time(self) -> None:
        """From here on no two copies of the command are alive at once."""
        self._processes.release()
        self._notes.change(one_at_a_time=True)

    # Questions about speed

    def compare(self, challenge: Challenge) -> ComparisonRecord:
        """B against A, from the journal or by lockstep. B's process stays alive until `adopt()` or `dismiss()`."""
        known = self._journal.comparisons.get(challenge.key)
        if known is not None:
            return known
        begun, in_turn = self._processes.now(), self.one_at_a_time
        record = self._compare(challenge)
        record = dataclasses.replace(record, wall_seconds=self._processes.now() - begun, in_turn=in_turn)
        if not self._was_cut_short(record):  # else a resumed tune asks again
            self._journal.append(record)
        return record

    def _was_cut_short(self, record: ComparisonRecord) -> bool:
        if record.failure:
            return record.failure_outcome is Outcome.OUT_OF_BUDGET
        return self.budget.remaining <= 0 and record.speedup is not None and record.speedup.num_blocks < MIN_BLOCKS

    def excess_seconds(self, choices: Choices) -> float | None:
        """What starting under these techniques cost beyond its steps; None when it was never done."""
        return self._notes.excess_of(choices)

    def _compare(self, challenge: Challenge) -> ComparisonRecord:
        parts: list[ComparisonRecord] = []
        for number in range(challenge.max_pairs):
            part = self._pair_answer(challenge, number)
            if part.failure_outcome is Outcome.OUT_OF_BUDGET and parts:
                break  # what is measured already stands
            if not part.pairs:
                return part
            parts.append(part)
            if not self._wants_another(challenge, [pair for part in parts for pair in part.pairs]):
                break
        pairs = [pair for part in parts for pair in part.pairs]
        return dataclasses.replace(
            _answer(challenge, details=parts[0].details),
            pairs=tuple(pairs),
            speedup=compare_pairs(pairs, extra_pair_log_ratios=self._aa_log_ratios(challenge)),
            verdict=parts[0].verdict,
        )

    def _pair_answer(self, challenge: Challenge, number: int) -> ComparisonRecord:
        """What one pair of processes tells; from the journal when a comparison was interrupted after it."""
        key = f"{challenge.key} pair {number + 1}"
        known = self._journal.comparisons.get(key)
        if known is not None:
            return known
        part = self._ask_pair(challenge, number)
        if part.pairs and challenge.max_pairs > 1:
            self._journal.append(dataclasses.replace(part, key=key, partial=True))
        return part

    def _ask_pair(self, challenge: Challenge, number: int) -> ComparisonRecord:
        found = self._pairs.run(challenge, number, in_turn=self.one_at_a_time)
        if found.pair is not None and not found.pair.blocks and found.problem is None:
            found = self._pairs.run(challenge, number, in_turn=self.one_at_a_time)  # its run's length is known now
        pair, problem, record = found.pair, found.problem, found.record
        expect_room(problem)
        details = {applied.name: applied.detail for applied in record.applied} if record is not None else {}
        if problem is not None and problem.outcome is not Outcome.OUT_OF_BUDGET:
            return _answer(challenge, failure=say(problem), outcome=problem.outcome, details=details)
        broken = failed_technique(record, challenge) if record is not None else ""
        if broken:
            return _answer(challenge, failure=broken, outcome=Outcome.EXCEPTION, details=details)
        no_effect = without_effect(record, challenge) if record is not None else ""
        if no_effect:
            return _answer(challenge, no_effect=no_effect, details=details)
        verdict = verdict_on(challenge, record)
        if challenge.judge is not None and verdict is None and problem is None:
            return _answer(
                challenge, failure="its numbers were not recorded, so they cannot be judged", details=details
            )
        if verdict is not None and not verdict.kept:
            return dataclasses.replace(_answer(challenge, details=details), verdict=verdict)
        if pair is None or not pair.blocks:
            problem = problem or Ended(outcome=Outcome.ENDED, message="the run is too short to compare")
            return _answer(challenge, failure=say(problem), outcome=problem.outcome, details=details)
        return dataclasses.replace(_answer(challenge, details=details), pairs=(pair,), verdict=verdict)

    def _wants_another(self, challenge: Challenge, pairs: list[PairRecord]) -> bool:
        """Another restart, where it could still change the answer: a gain that is likely but not yet certain."""
        if not pairs or self.budget.remaining <= challenge.reserve_seconds + self.comparison_seconds / 2:
            return False
        if challenge.fresh:
            return True
        interval = compare_pairs(pairs, extra_pair_log_ratios=self._aa_log_ratios(challenge))
        is_open = interval.low <= 1.0 + self.floor < interval.median
        return is_open and interval.median - 1.0 > _WORTH_ANOTHER_PAIR * (interval.median - interval.low)

    def _aa_log_ratios(self, challenge: Challenge) -> tuple[float, ...]:
        return () if challenge.a == challenge.b else pair_log_ratios(self.aa_pairs)


def pair_log_ratios(pairs: Sequence[PairRecord]) -> tuple[float, ...]:
    """The log ratio of each pair of identical processes: how far restarts differ here."""
    return tuple(
        statistics.median(math.log(block.a.seconds_per_step / block.b.seconds_per_step) for block in pair.blocks)
        for pair in pairs
        if pair.blocks
    )


def _answer(
    challenge: Challenge,
    *,
    failure: str = "",
    outcome: Outcome | None = None,
    no_effect: str = "",
    details: dict[str, str] | None = None,
) -> ComparisonRecord:
    return ComparisonRecord(
        key=challenge.key,
        a=challenge.a,
        b=challenge.b,
        failure=failure,
        failure_outcome=outcome,
        no_effect=no_effect,
        details=details or {},
    )
