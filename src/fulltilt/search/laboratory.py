"""Asks questions of the user's command and remembers the answers: every trial and comparison is run once.

What is asked stands in the journal, with its answer; a resumed tune asks the same questions and gets the old answers.
"""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path

from fulltilt.errors import CommandFailed, FulltiltError, StorageError
from fulltilt.measure.comparison import compare_pairs
from fulltilt.measure.floor import aa_floor
from fulltilt.measure.noise import is_busy
from fulltilt.measure.sequential import should_stop
from fulltilt.records.codec import CodecError, from_json
from fulltilt.records.journal import Block, ComparisonRecord, PairedBlock, PairRecord, TrialRecord, VerdictRecord
from fulltilt.records.record import Evidence, WorkerRecord
from fulltilt.records.request import EvidenceRequest
from fulltilt.records.result import ProtectionRecord
from fulltilt.records.words import Outcome, Role
from fulltilt.search.budget import Budget
from fulltilt.search.notes import Notes
from fulltilt.search.pace import Pace, measured_pace, opening_pace
from fulltilt.search.processes import Choices, Processes, new_names
from fulltilt.search.progress import Progress
from fulltilt.trials.contract import Ended, Executor, LiveTrial, Ready, TrialPlan
from fulltilt.trials.journal import Journal
from fulltilt.trials.lockstep import run_lockstep

Judge = Callable[[Evidence, Choices], VerdictRecord]


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Challenge:
    """How to compare: how many pairs of processes, and whether numbers are judged too."""

    key: str
    a: Choices
    b: Choices
    max_pairs: int = 1
    fresh: bool = False
    """Start A anew for every pair: restarts of both are then in the interval."""
    judge: Judge | None = None
    b_trial: str = ""
    """Name of B's trial, where its record is to serve again; a running number otherwise."""
    b_role: Role = Role.CANDIDATE
    reserve_seconds: float = 0.0
    """How much of the budget must be left over for what comes later."""


_WORTH_ANOTHER_PAIR = 0.5
"""A gain of less than this share of its interval's half width would stay uncertain after three pairs, too."""


_GOOD_ENDS = (Outcome.FINISHED, Outcome.ENDED)
_ENDS_OF_THE_MOMENT = (Outcome.OUT_OF_BUDGET, Outcome.DISK_FULL, Outcome.NOT_STARTED)
"""These say nothing about the command: what ended so is asked again."""


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class _Run:
    """What one process told that ran alone."""

    record: WorkerRecord | None
    blocks: tuple[Block, ...]
    problem: Ended | None
    trial: LiveTrial


MIN_BLOCKS = 6
"""A comparison with fewer blocks, because the budget ended, is not an answer."""


class EnvelopeFailed(FulltiltError):
    """A run has failed that was made for its numbers alone: to tell how far they may move, or to judge a recipe."""

    def __init__(self, trial: str, role: Role, ended: Ended | None) -> None:
        said = _say(ended) if ended is not None else "nothing was recorded"
        super().__init__(f"the run {trial}, made for its numbers, failed: {said}")
        self.role = role
        self.out_of_budget = ended is not None and ended.outcome is Outcome.OUT_OF_BUDGET


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
        self._journal, self._directory, self._num_cpus = journal, directory, num_cpus
        self._notes = Notes(directory / "trials" / "pace.json")
        self._processes = Processes(executor, journal, budget=budget, progress=progress, notes=self._notes)
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
        _expect_room(live.ended)
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
        if not any(known.trial == trial and known.outcome in _GOOD_ENDS for known in self._journal.trials):
            return None
        try:
            text = (self._directory / "trials" / trial / "record.json").read_text(encoding="utf-8", errors="replace")
            return from_json(WorkerRecord, text)
        except (OSError, CodecError):
            return None

    def _known_failure(self, trial: str) -> Ended | None:
        failures = [known for known in self._journal.trials if known.trial == trial and known.outcome not in _GOOD_ENDS]
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
        pair, problem, record = self._run_pair(challenge, number)
        if pair is not None and not pair.blocks and problem is None:  # a run came to its end: now its length is known
            pair, problem, record = self._run_pair(challenge, number)
        _expect_room(problem)
        details = {applied.name: applied.detail for applied in record.applied} if record is not None else {}
        if problem is not None and problem.outcome is not Outcome.OUT_OF_BUDGET:
            return _answer(challenge, failure=_say(problem), outcome=problem.outcome, details=details)
        broken = _failed_technique(record, challenge) if record is not None else ""
        if broken:
            return _answer(challenge, failure=broken, outcome=Outcome.EXCEPTION, details=details)
        no_effect = _without_effect(record, challenge) if record is not None else ""
        if no_effect:
            return _answer(challenge, no_effect=no_effect, details=details)
        verdict = self._verdict(challenge, record)
        if challenge.judge is not None and verdict is None and problem is None:
            return _answer(
                challenge, failure="its numbers were not recorded, so they cannot be judged", details=details
            )
        if verdict is not None and not verdict.kept:
            return dataclasses.replace(_answer(challenge, details=details), verdict=verdict)
        if pair is None or not pair.blocks:
            problem = problem or Ended(outcome=Outcome.ENDED, message="the run is too short to compare")
            return _answer(challenge, failure=_say(problem), outcome=problem.outcome, details=details)
        return dataclasses.replace(_answer(challenge, details=details), pairs=(pair,), verdict=verdict)

    def _verdict(self, challenge: Challenge, record: WorkerRecord | None) -> VerdictRecord | None:
        if challenge.judge is None or record is None or record.evidence is None:
            return None
        return challenge.judge(record.evidence, challenge.b)

    def _run_pair(
        self, challenge: Challenge, number: int
    ) -> tuple[PairRecord | None, Ended | None, WorkerRecord | None]:
        if self.one_at_a_time:
            return self._run_pair_in_turn(challenge, a_first=number % 2 == 0)
        processes = self._processes
        processes.dismiss()
        a, problem = processes.incumbent_for(challenge.a, fresh=challenge.fresh or number > 0)
        if a is None:
            return None, _of_the_other(problem), None
        plan = processes.plan(challenge.b, name=challenge.b_trial, role=challenge.b_role)
        b, ready = processes.challenge(plan, reserve_seconds=challenge.reserve_seconds)
        record = b.record
        if isinstance(ready, Ended) and (ready.outcome is not Outcome.ENDED or record is None):
            return None, ready, None
        if self._needs_no_timing(challenge, record):
            return None, None, record
        warmup = processes.warm(b, ready) if isinstance(ready, Ready) else 0
        pair, ended = self._run_blocks(a, b, challenge)
        return dataclasses.replace(pair, warmup_steps=warmup), ended, record

    def _run_pair_in_turn(
        self, challenge: Challenge, *, a_first: bool
    ) -> tuple[PairRecord | None, Ended | None, WorkerRecord | None]:
        """Whole runs one after the other, where two cannot be alive: drift between them is then in the interval."""
        self._processes.release()
        plan_a = self._processes.plan(challenge.a)
        plan_b = self._processes.plan(challenge.b, name=challenge.b_trial, role=challenge.b_role)
        runs = {}
        for plan in (plan_a, plan_b) if a_first else (plan_b, plan_a):
            runs[plan.trial] = run = self._run_alone(plan)
            if isinstance(run.problem, Ended):
                return None, run.problem if plan is plan_b else _of_the_other(run.problem), None
            if plan is plan_b and self._needs_no_timing(challenge, run.record):
                return None, None, run.record
        a, b = runs[plan_a.trial], runs[plan_b.trial]
        blocks = zip(a.blocks, b.blocks, strict=False)
        marked = tuple(self._marked(PairedBlock(a=one, b=other, a_first=a_first)) for one, other in blocks)
        pair = PairRecord(a_trial=plan_a.trial, b_trial=plan_b.trial, blocks=marked)
        return pair, _diverged(a.trial, b.trial), b.record

    def _run_alone(self, plan: TrialPlan) -> _Run:
        """Start, warm up, run half of the blocks that a pair may have, and end."""
        processes = self._processes
        live = processes.start(plan)
        ready = live.wait_ready(processes.patience())
        blocks: list[Block] = []
        if isinstance(ready, Ready):
            processes.warm(live, ready)
            while len(blocks) < max(1, self.pace.max_blocks // 2):
                block = live.run_block(self.pace.block_steps, processes.patience())
                if isinstance(block, Ended):
                    self._note_end(block)
                    break
                blocks.append(block)
        processes.end(live)
        failed = live.ended if live.ended is not None and live.ended.outcome not in _GOOD_ENDS else None
        return _Run(record=live.record, blocks=tuple(blocks), problem=failed, trial=live)

    def _needs_no_timing(self, challenge: Challenge, record: WorkerRecord | None) -> bool:
        """It did nothing, or its numbers are wrong: how fast that was does not matter."""
        verdict = self._verdict(challenge, record)
        did_nothing = record is not None and bool(
            _without_effect(record, challenge) or _failed_technique(record, challenge)
        )
        return did_nothing or (verdict is not None and not verdict.kept)

    def _run_blocks(self, a: LiveTrial, b: LiveTrial, challenge: Challenge) -> tuple[PairRecord, Ended | None]:
        blocks, ended = run_lockstep(
            a,
            b,
            num_steps=self.pace.block_steps,
            stop=self._stop_rule(challenge, a, b),
            deadline=self._processes.patience(),
        )
        if ended is not None and ended.outcome is Outcome.ENDED:
            self._note_end(ended)
            self._processes.drop_ended()
            ended = None
        if ended is not None and ended is a.ended:
            ended = _of_the_other(ended)
        marked = tuple(self._marked(block) for block in blocks)
        return PairRecord(a_trial=a.plan.trial, b_trial=b.plan.trial, blocks=marked), ended or _diverged(a, b)

    def _stop_rule(self, challenge: Challenge, a: LiveTrial, b: LiveTrial) -> Callable[[Sequence[PairedBlock]], bool]:
        def stop(blocks: Sequence[PairedBlock]) -> bool:
            self._processes.tick()
            if _diverged(a, b) is not None:
                return True
            if len(blocks) >= self.pace.max_blocks or self.budget.remaining <= challenge.reserve_seconds:
                return True
            marked = [self._marked(block) for block in blocks]
            return should_stop(marked, floor=self.floor, max_blocks=self.pace.max_blocks).stop

        return stop

    def _wants_another(self, challenge: Challenge, pairs: list[PairRecord]) -> bool:
        """Another restart, where it could still change the answer: a gain that is likely but not yet certain."""
        if not pairs or self.budget.remaining <= challenge.reserve_seconds + self.comparison_seconds / 2:
            return False
        if challenge.fresh:
            return True
        interval = compare_pairs(pairs, extra_pair_log_ratios=self._aa_log_ratios(challenge))
        is_open = interval.low <= 1.0 + self.floor < interval.median
        return is_open and interval.median - 1.0 > _WORTH_ANOTHER_PAIR * (interval.median - interval.low)

    def _marked(self, block: PairedBlock) -> PairedBlock:
        """With what was seen of other load, and without the times of single steps, which no journal needs."""
        return PairedBlock(
            a=dataclasses.replace(block.a, step_seconds=()),
            b=dataclasses.replace(block.b, step_seconds=()),
            a_first=block.a_first,
            busy=is_busy(block.a, block.b, self._num_cpus),
        )

    def _aa_log_ratios(self, challenge: Challenge) -> tuple[float, ...]:
        return () if challenge.a == challenge.b else pair_log_ratios(self.aa_pairs)


def pair_log_ratios(pairs: Sequence[PairRecord]) -> tuple[float, ...]:
    """The log ratio of each pair of identical processes: how far restarts differ here."""
    return tuple(
        statistics.median(math.log(block.a.seconds_per_step / block.b.seconds_per_step) for block in pair.blocks)
        for pair in pairs
        if pair.blocks
    )


def command_failed(ended: Ended | None) -> CommandFailed:
    """The error for a command that does not train by itself."""
    if ended is None or ended.outcome in (Outcome.ENDED, Outcome.FINISHED):
        return CommandFailed("the command trained, but left no record", hint="Is its folder for temporary files full?")
    if ended.outcome is Outcome.OUT_OF_BUDGET:
        return CommandFailed(f"the command could not be measured: {_say(ended)}")
    if ended.outcome is Outcome.NO_TRAINING:
        return CommandFailed(
            "the command ended without a training step that fulltilt could see",
            hint="A step is seen when torch (Python 3.11 or newer) calls backward or an optimizer's step. "
            "Is this the command that trains? Python's flags -I, -E and -S keep fulltilt out.",
        )
    return CommandFailed(f"the command fails by itself, without fulltilt's help: {_say(ended)}")


def _expect_room(ended: Ended | None) -> None:
    """A full disk says nothing about the command or a technique, and the next trial would find it full, too."""
    if ended is not None and ended.outcome is Outcome.DISK_FULL:
        raise StorageError(
            f"there was no room for what the command writes: {_say(ended)}",
            hint="Free some space, or point TMPDIR at another disk; then go on with the same --out. "
            "Finished trials are kept.",
        )


def _of_the_other(ended: Ended | None) -> Ended | None:
    """It was A that failed: no fault of what B adds."""
    return dataclasses.replace(ended, message=f"the run beside it failed: {_say(ended)}") if ended is not None else None


def _diverged(a: LiveTrial, b: LiveTrial) -> Ended | None:
    """Are B's weights nan or infinite at a step at which A's still were not?"""
    of_a, of_b = a.not_finite_steps, b.not_finite_steps
    if of_b is None or (of_a is not None and of_a[0] <= of_b[1]):
        return None
    others = "are not" if of_a is None else f"did so only in steps {of_a[0]} to {of_a[1]}"
    return Ended(
        outcome=Outcome.NOT_FINITE,
        message=f"weights became nan or infinite in steps {of_b[0]} to {of_b[1]}; those of the run beside it {others}",
        num_steps=b.num_steps,
    )


def _say(ended: Ended) -> str:
    return ended.message or ended.outcome.value.replace("_", " ")


def _without_effect(record: WorkerRecord, challenge: Challenge) -> str:
    """Why the techniques that B has and A has not did nothing; empty when one of them did something."""
    new = [applied for applied in record.applied if applied.name in new_names(challenge.a, challenge.b)]
    if not new or any(applied.outcome not in ("no_effect", "pending") for applied in new):
        return ""
    return "; ".join(dict.fromkeys(applied.detail for applied in new))


def _failed_technique(record: WorkerRecord, challenge: Challenge) -> str:
    """What a technique raised that B has and A has not; empty when none did."""
    failed = [
        a.detail for a in record.applied if a.name in new_names(challenge.a, challenge.b) and a.outcome == "failed"
    ]
    return "; ".join(failed)


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
