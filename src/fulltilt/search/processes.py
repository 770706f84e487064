"""The live processes of a tune: one incumbent, under the best recipe so far, and one challenger.

The incumbent stays alive between comparisons, so that its start-up is paid once. A challenger that wins becomes the
incumbent with its process.
"""

from __future__ import annotations

from fulltilt.measure.warmup import warmup_excess_seconds, warmup_steps
from fulltilt.records.request import EvidenceRequest, TechniqueChoice
from fulltilt.records.result import ProtectionRecord
from fulltilt.records.words import Outcome, Role
from fulltilt.search.budget import Budget
from fulltilt.search.notes import Notes
from fulltilt.search.pace import Pace
from fulltilt.search.progress import Progress
from fulltilt.trials.contract import Ended, Executor, LiveTrial, Ready, TrialPlan
from fulltilt.trials.journal import Journal

Choices = tuple[TechniqueChoice, ...]

_GRACE_SECONDS = 30.0
"""A trial that runs when the budget ends is given this long."""
_WARMUP_ROUNDS = 4


def new_names(a: Choices, b: Choices) -> set[str]:
    """The techniques that B has, or has with other options, and A has not."""
    return {choice.name for choice in b if choice not in a}


class Processes:
    """Starts, warms, keeps and ends trials; every ended trial goes into the journal."""

    def __init__(
        self, executor: Executor, journal: Journal, *, budget: Budget, progress: Progress, notes: Notes
    ) -> None:
        self._executor, self._journal, self._progress, self._notes = executor, journal, progress, notes
        self.budget = budget
        self.pace = Pace()
        self._incumbent: LiveTrial | None = None
        self._challenger: LiveTrial | None = None
        self._number = len(journal.trials)

    @property
    def protection(self) -> ProtectionRecord | None:
        return self._executor.protection

    def now(self) -> float:
        return self._executor.now()

    def start(self, plan: TrialPlan) -> LiveTrial:
        self.tick()
        return self._executor.start(plan)

    def end(self, live: LiveTrial | None) -> None:
        """End a trial, and write it into the journal."""
        if live is not None:
            record = live.close()
            if record not in self._journal.trials:
                self._journal.append(record)

    def incumbent_for(self, choices: Choices, *, fresh: bool) -> tuple[LiveTrial | None, Ended | None]:
        """A warm process under `choices`, the living one where it can serve; or how starting one ended."""
        live = self._incumbent
        if live is not None and not fresh and live.plan.techniques == choices and self._has_steps_left(live):
            return live, None
        self.end(live)
        self._incumbent = live = self.start(self.plan(choices))
        ready = live.wait_ready(self.patience())
        if isinstance(ready, Ended):
            is_short_run = ready.outcome is Outcome.ENDED and self._notes.pacing.total_steps is not None
            return (live, None) if is_short_run else (None, ready)
        self.warm(live, ready)
        return live, None

    def challenge(self, plan: TrialPlan, *, reserve_seconds: float = 0.0) -> tuple[LiveTrial, Ready | Ended]:
        """A new challenger, run until it is ready; not warm yet."""
        self.dismiss()
        self._challenger = self.start(plan)
        return self._challenger, self._challenger.wait_ready(self.patience(reserve_seconds))

    def adopt(self) -> None:
        """The challenger has won: its process is the incumbent now."""
        self.end(self._incumbent)
        self._incumbent, self._challenger = self._challenger, None

    def dismiss(self) -> None:
        """The challenger is done with."""
        self.end(self._challenger)
        self._challenger = None

    def release(self) -> None:
        """End both."""
        self.dismiss()
        self.end(self._incumbent)
        self._incumbent = None

    def drop_ended(self) -> None:
        """An incumbent that has come to its own end cannot serve in the next pair."""
        if self._incumbent is not None and self._incumbent.ended is not None:
            self.end(self._incumbent)
            self._incumbent = None

    def close(self) -> None:
        """End everything, without another word in the journal."""
        self._incumbent = self._challenger = None
        self._executor.close()

    def plan(self, choices: Choices, *, name: str = "", role: Role = Role.CANDIDATE) -> TrialPlan:
        evidence = EvidenceRequest(num_steps=self.pace.evidence_steps)
        return TrialPlan(trial=name or self._new_name(choices), role=role, techniques=choices, evidence=evidence)

    def warm(self, live: LiveTrial, ready: Ready) -> int:
        """Run steps until they are warm, by their own times, and note what the start cost; how many steps it took."""
        before, after = list(ready.step_seconds), list[float]()
        for _ in range(_WARMUP_ROUNDS):
            block = live.run_block(max(1, self.pace.warmup_steps), self.patience())
            if isinstance(block, Ended):
                break
            after += block.step_seconds
            is_short_run = self._notes.pacing.total_steps is not None
            if is_short_run or warmup_steps(before + after) <= len(before) + len(after) - block.num_steps:
                break
        steady = sorted(after or before)[len(after or before) // 2]
        excess = max(0.0, ready.seconds_to_ready - len(before) * steady)
        self._notes.note_excess(live.plan.techniques, excess + warmup_excess_seconds(after, warmup_steps(after)))
        return len(after)

    def patience(self, reserve_seconds: float = 0.0) -> float:
        """The time of the executor's clock at which a trial is given up."""
        return max(self.budget.deadline - reserve_seconds, self.now() + _GRACE_SECONDS)

    def tick(self) -> None:
        self._progress.tick(spent=self.budget.spent, budget=self.budget.seconds)

    def _has_steps_left(self, live: LiveTrial) -> bool:
        """Can it still serve in a comparison, or will its run have come to its end before?"""
        if live.ended is not None:
            return False
        total = self._notes.pacing.total_steps
        needed = self.pace.warmup_steps + self.pace.max_blocks * self.pace.block_steps
        return total is None or live.num_steps + needed <= total

    def _new_name(self, choices: Choices) -> str:
        """Never that of a finished trial, whose record would be written over: a resumed tune counts from elsewhere."""
        taken = {record.trial for record in self._journal.trials}
        words = ("+".join(choice.name for choice in choices) or "plain")[:60]
        while True:
            self._number += 1
            name = f"{self._number:03d}-{words}"
            if name not in taken:
                return name
