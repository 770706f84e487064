"""Runs one pair of processes, A and B: in lockstep, or one after the other where two cannot be alive."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

from fulltilt.measure.noise import is_busy
from fulltilt.measure.sequential import should_stop
from fulltilt.records.journal import Block, PairedBlock, PairRecord, VerdictRecord
from fulltilt.records.record import Evidence, WorkerRecord
from fulltilt.records.words import Outcome, Role
from fulltilt.search.failures import GOOD_ENDS, diverged, of_the_other
from fulltilt.search.processes import Choices, Processes, new_names
from fulltilt.trials.contract import Ended, LiveTrial, Ready, TrialPlan
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


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class PairOutcome:
    """What a pair of processes told."""

    pair: PairRecord | None
    """Its blocks; None when it was not timed."""
    problem: Ended | None
    """What went wrong with B, or with the run beside it."""
    record: WorkerRecord | None
    """B's."""


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class _Run:
    """What one process told that ran alone."""

    record: WorkerRecord | None
    blocks: tuple[Block, ...]
    problem: Ended | None
    trial: LiveTrial


class Pairs:
    """Runs pairs. `floor` is the relative difference under which nothing is claimed; `note_end` is told of runs that
    come to their own end."""

    def __init__(
        self,
        processes: Processes,
        *,
        num_cpus: int,
        floor: Callable[[], float],
        note_end: Callable[[Ended | None], None],
    ) -> None:
        self._processes, self._num_cpus, self._floor, self._note_end = processes, num_cpus, floor, note_end

    def run(self, challenge: Challenge, number: int, *, in_turn: bool) -> PairOutcome:
        """The pair of this number, from 0."""
        if in_turn:
            return self._run_in_turn(challenge, a_first=number % 2 == 0)
        return self._run_beside(challenge, fresh=challenge.fresh or number > 0)

    def _run_beside(self, challenge: Challenge, *, fresh: bool) -> PairOutcome:
        processes = self._processes
        processes.dismiss()
        a, problem = processes.incumbent_for(challenge.a, fresh=fresh)
        if a is None:
            return PairOutcome(pair=None, problem=of_the_other(problem), record=None)
        plan = processes.plan(challenge.b, name=challenge.b_trial, role=challenge.b_role)
        b, ready = processes.challenge(plan, reserve_seconds=challenge.reserve_seconds)
        record = b.record
        if isinstance(ready, Ended) and (ready.outcome is not Outcome.ENDED or record is None):
            return PairOutcome(pair=None, problem=ready, record=None)
        if _needs_no_timing(challenge, record):
            return PairOutcome(pair=None, problem=None, record=record)
        warmup = processes.warm(b, ready) if isinstance(ready, Ready) else 0
        pair, ended = self._run_blocks(a, b, challenge)
        return PairOutcome(pair=dataclasses.replace(pair, warmup_steps=warmup), problem=ended, record=record)

    def _run_in_turn(self, challenge: Challenge, *, a_first: bool) -> PairOutcome:
        """Whole runs one after the other, where two cannot be alive: drift between them is then in the interval."""
        self._processes.release()
        plan_a = self._processes.plan(challenge.a)
        plan_b = self._processes.plan(challenge.b, name=challenge.b_trial, role=challenge.b_role)
        runs = {}
        for plan in (plan_a, plan_b) if a_first else (plan_b, plan_a):
            runs[plan.trial] = run = self._run_alone(plan)
            if isinstance(run.problem, Ended):
                problem = run.problem if plan is plan_b else of_the_other(run.problem)
                return PairOutcome(pair=None, problem=problem, record=None)
            if plan is plan_b and _needs_no_timing(challenge, run.record):
                return PairOutcome(pair=None, problem=None, record=run.record)
        a, b = runs[plan_a.trial], runs[plan_b.trial]
        blocks = zip(a.blocks, b.blocks, strict=False)
        marked = tuple(self._marked(PairedBlock(a=one, b=other, a_first=a_first)) for one, other in blocks)
        pair = PairRecord(a_trial=plan_a.trial, b_trial=plan_b.trial, blocks=marked)
        return PairOutcome(pair=pair, problem=diverged(a.trial, b.trial), record=b.record)

    def _run_alone(self, plan: TrialPlan) -> _Run:
        """Start, warm up, run half of the blocks that a pair may have, and end."""
        processes = self._processes
        live = processes.start(plan)
        ready = live.wait_ready(processes.patience())
        blocks: list[Block] = []
        if isinstance(ready, Ready):
            processes.warm(live, ready)
            while len(blocks) < max(1, self._processes.pace.max_blocks // 2):
                block = live.run_block(self._processes.pace.block_steps, processes.patience())
                if isinstance(block, Ended):
                    self._note_end(block)
                    break
                blocks.append(block)
        processes.end(live)
        failed = live.ended if live.ended is not None and live.ended.outcome not in GOOD_ENDS else None
        return _Run(record=live.record, blocks=tuple(blocks), problem=failed, trial=live)

    def _run_blocks(self, a: LiveTrial, b: LiveTrial, challenge: Challenge) -> tuple[PairRecord, Ended | None]:
        blocks, ended = run_lockstep(
            a,
            b,
            num_steps=self._processes.pace.block_steps,
            stop=self._stop_rule(challenge, a, b),
            deadline=self._processes.patience(),
        )
        if ended is not None and ended.outcome is Outcome.ENDED:
            self._note_end(ended)
            self._processes.drop_ended()
            ended = None
        if ended is not None and ended is a.ended:
            ended = of_the_other(ended)
        marked = tuple(self._marked(block) for block in blocks)
        return PairRecord(a_trial=a.plan.trial, b_trial=b.plan.trial, blocks=marked), ended or diverged(a, b)

    def _stop_rule(self, challenge: Challenge, a: LiveTrial, b: LiveTrial) -> Callable[[Sequence[PairedBlock]], bool]:
        def stop(blocks: Sequence[PairedBlock]) -> bool:
            self._processes.tick()
            if diverged(a, b) is not None:
                return True
            if (
                len(blocks) >= self._processes.pace.max_blocks
                or self._processes.budget.remaining <= challenge.reserve_seconds
            ):
                return True
            marked = [self._marked(block) for block in blocks]
            return should_stop(marked, floor=self._floor(), max_blocks=self._processes.pace.max_blocks).stop

        return stop

    def _marked(self, block: PairedBlock) -> PairedBlock:
        """With what was seen of other load, and without the times of single steps, which no journal needs."""
        return PairedBlock(
            a=dataclasses.replace(block.a, step_seconds=()),
            b=dataclasses.replace(block.b, step_seconds=()),
            a_first=block.a_first,
            busy=is_busy(block.a, block.b, self._num_cpus),
        )


def verdict_on(challenge: Challenge, record: WorkerRecord | None) -> VerdictRecord | None:
    """Of the challenge's judge on B's numbers; None without a judge, or without numbers."""
    if challenge.judge is None or record is None or record.evidence is None:
        return None
    return challenge.judge(record.evidence, challenge.b)


def without_effect(record: WorkerRecord, challenge: Challenge) -> str:
    """Why the techniques that B has and A has not did nothing; empty when one of them did something."""
    new = [applied for applied in record.applied if applied.name in new_names(challenge.a, challenge.b)]
    if not new or any(applied.outcome not in ("no_effect", "pending") for applied in new):
        return ""
    return "; ".join(dict.fromkeys(applied.detail for applied in new))


def failed_technique(record: WorkerRecord, challenge: Challenge) -> str:
    """What a technique raised that B has and A has not; empty when none did."""
    failed = [
        a.detail for a in record.applied if a.name in new_names(challenge.a, challenge.b) and a.outcome == "failed"
    ]
    return "; ".join(failed)


def _needs_no_timing(challenge: Challenge, record: WorkerRecord | None) -> bool:
    """It did nothing, or its numbers are wrong: how fast that was does not matter."""
    verdict = verdict_on(challenge, record)
    did_nothing = record is not None and bool(without_effect(record, challenge) or failed_technique(record, challenge))
    return did_nothing or (verdict is not None and not verdict.kept)
