"""Asks questions of the user's command and remembers the answers: every trial and comparison is run once.

The incumbent, the process under the best recipe so far, stays alive between comparisons, so that its start-up is paid
once. A challenger is measured against it in lockstep; if it wins, its process becomes the incumbent.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Sequence
from pathlib import Path

from fulltilt.errors import CommandFailed, FulltiltError
from fulltilt.measure.comparison import compare_pairs
from fulltilt.measure.floor import aa_floor
from fulltilt.measure.noise import is_busy
from fulltilt.measure.sequential import should_stop
from fulltilt.measure.warmup import warmup_excess_seconds, warmup_steps
from fulltilt.records.codec import CodecError, from_json, to_plain
from fulltilt.records.journal import ComparisonRecord, PairedBlock, PairRecord, TrialRecord, VerdictRecord
from fulltilt.records.record import Evidence, WorkerRecord
from fulltilt.records.request import EvidenceRequest, TechniqueChoice
from fulltilt.records.words import Outcome, Role
from fulltilt.search.budget import Budget
from fulltilt.search.pace import Pace, measured_pace, opening_pace
from fulltilt.search.progress import Progress
from fulltilt.trials.contract import Ended, Executor, LiveTrial, Ready, TrialPlan
from fulltilt.trials.journal import Journal
from fulltilt.trials.lockstep import run_lockstep

Choices = tuple[TechniqueChoice, ...]
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
    early_stop: bool = True
    judge: Judge | None = None
    b_trial: str = ""
    """Name of B's trial, where its record is to serve again; a running number otherwise."""
    b_role: Role = Role.CANDIDATE


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
        self._executor, self._journal, self._directory = executor, journal, directory
        self._progress, self._num_cpus = progress, num_cpus
        self.budget = budget
        self.pace = Pace()
        self.total_steps: int | None = None
        self.step_seconds = 0.0
        self.seconds_to_ready = 0.0
        self.aa_pairs: list[PairRecord] = []
        self._incumbent: LiveTrial | None = None
        self._challenger: LiveTrial | None = None
        self._excess: dict[str, float] = {}
        self._number = len(journal.trials)

    @property
    def floor(self) -> float:
        """The relative difference under which nothing is claimed."""
        return aa_floor(self.aa_pairs)

    @property
    def trials(self) -> tuple[TrialRecord, ...]:
        return tuple(self._journal.trials)

    # Questions about numbers

    def record_of(self, trial: str, role: Role, *, evidence: EvidenceRequest, profile_steps: int = 0) -> WorkerRecord:
        """What the command under no technique recorded, asked as `trial`: from the journal, or by running it.

        Raises:
            CommandFailed: when the command does not come to train.
        """
        known = self._known_record(trial)
        if known is not None:
            return known
        live = self._start(TrialPlan(trial=trial, role=role, evidence=evidence, profile_steps=profile_steps))
        ready = live.wait_ready(self._patience())
        if isinstance(ready, Ready) and role is Role.BASELINE:
            self.seconds_to_ready = ready.seconds_to_ready
            self._measure_pace(live)
        self._close(live)
        record = live.record
        ended = live.ended
        if record is None or record.evidence is None or not record.evidence.num_steps:
            raise command_failed(ended)
        if isinstance(ready, Ended) and ready.outcome is not Outcome.ENDED:
            raise command_failed(ready)
        if isinstance(ended, Ended) and ended.outcome is Outcome.ENDED:
            self.total_steps = ended.num_steps
        return record

    def settle_pace(self, baseline: WorkerRecord) -> None:
        """Fix the rhythm of all comparisons once the baseline is known (also when it came from the journal)."""
        notes = self._read_notes()
        if notes:
            self.total_steps, self.step_seconds = notes["total_steps"], notes["step_seconds"]
            self.seconds_to_ready = notes["seconds_to_ready"]
        if not self.step_seconds and baseline.phases is not None:
            self.step_seconds = baseline.phases.step_seconds
        self._write_notes()
        self.pace = measured_pace(
            opening_pace(self.total_steps if self._is_short() else None),
            step_seconds=max(self.step_seconds, 1e-6),
            budget_seconds=self.budget.seconds,
            total_steps=self.total_steps,
        )

    def evidence_request(self) -> EvidenceRequest:
        return EvidenceRequest(num_steps=self.pace.evidence_steps)

    # Questions about speed

    def compare(self, challenge: Challenge) -> ComparisonRecord:
        """B against A, from the journal or by lockstep. B's process stays alive until `adopt()` or `dismiss()`."""
        known = self._journal.comparisons.get(challenge.key)
        if known is not None:
            return known
        begun = self._executor.now()
        record = self._compare(challenge)
        record = dataclasses.replace(record, wall_seconds=self._executor.now() - begun)
        self._journal.append(record)
        return record

    def adopt(self) -> None:
        """The challenger has won: its process is the incumbent now."""
        self._close(self._incumbent)
        self._incumbent, self._challenger = self._challenger, None

    def dismiss(self) -> None:
        """The challenger is done with."""
        self._close(self._challenger)
        self._challenger = None

    def release(self) -> None:
        """End both processes."""
        self.dismiss()
        self._close(self._incumbent)
        self._incumbent = None

    def close(self) -> None:
        self._incumbent = self._challenger = None
        self._executor.close()

    def excess_seconds(self, choices: Choices) -> float | None:
        """What starting under these techniques cost beyond its steps: start-up, compilation, warm-up."""
        noted: float | None = self._read_notes().get("excess", {}).get(_text_of(choices))
        return self._excess.get(_text_of(choices), noted)

    def _compare(self, challenge: Challenge) -> ComparisonRecord:
        parts: list[ComparisonRecord] = []
        for number in range(challenge.max_pairs):
            part = self._pair_answer(challenge, number)
            if part.failure and parts:
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
        details = {applied.name: applied.detail for applied in record.applied} if record is not None else {}
        no_effect = _without_effect(record, challenge) if record is not None else ""
        if no_effect:
            return _answer(challenge, no_effect=no_effect, details=details)
        verdict = self._verdict(challenge, record)
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
        self.dismiss()
        a, problem = self._incumbent_for(challenge.a, fresh=challenge.fresh or number > 0)
        if a is None:
            return None, problem, None
        b = self._start(self._plan(challenge.b, name=challenge.b_trial, role=challenge.b_role))
        self._challenger = b
        ready = b.wait_ready(self._patience())
        if isinstance(ready, Ended) and not (ready.outcome is Outcome.ENDED and b.record is not None):
            return None, ready, None
        record = b.record
        verdict = self._verdict(challenge, record)
        if record is not None and (_without_effect(record, challenge) or (verdict is not None and not verdict.kept)):
            return None, None, record  # needs no timing
        warm = self._warm(b, ready) if isinstance(ready, Ready) else 0
        blocks, ended = run_lockstep(
            a, b, num_steps=self.pace.block_steps, stop=self._stop_rule(challenge), deadline=self._patience()
        )
        if ended is not None and ended.outcome is Outcome.ENDED:
            self._note_total_steps(ended)
            self._drop_ended()
            ended = None
        pair = PairRecord(
            a_trial=a.plan.trial,
            b_trial=b.plan.trial,
            blocks=tuple(self._marked(block) for block in blocks),
            warmup_steps=warm,
        )
        return pair, ended, record

    def _incumbent_for(self, choices: Choices, *, fresh: bool) -> tuple[LiveTrial | None, Ended | None]:
        live = self._incumbent
        if live is not None and not fresh and live.plan.techniques == choices and self._has_steps_left(live):
            return live, None
        self._close(live)
        self._incumbent = live = self._start(self._plan(choices))
        ready = live.wait_ready(self._patience())
        if isinstance(ready, Ended):
            return (live, None) if ready.outcome is Outcome.ENDED and self._is_short() else (None, ready)
        self._warm(live, ready)
        return live, None

    def _has_steps_left(self, live: LiveTrial) -> bool:
        """Can it still serve in a comparison, or will its run have come to its end before?"""
        if live.ended is not None:
            return False
        needed = self.pace.warmup_steps + self.pace.max_blocks * self.pace.block_steps
        return self.total_steps is None or live.num_steps + needed <= self.total_steps

    def _warm(self, live: LiveTrial, ready: Ready) -> int:
        """Run steps until they are warm, by their own times; at least `pace.warmup_steps`."""
        seconds = list(ready.step_seconds)
        num_steps = 0
        for _ in range(4):
            block = live.run_block(max(1, self.pace.warmup_steps), self._patience())
            if isinstance(block, Ended):
                break
            num_steps += block.num_steps
            seconds += block.step_seconds
            if self.total_steps is not None or warmup_steps(seconds) <= len(seconds) - block.num_steps:
                break
        steady = sorted(seconds[-max(1, num_steps) :])[max(1, num_steps) // 2]
        excess = max(0.0, ready.seconds_to_ready - len(ready.step_seconds) * steady)
        excess += warmup_excess_seconds(seconds[len(ready.step_seconds) :], num_steps) if num_steps > 3 else 0.0
        self._excess.setdefault(_text_of(live.plan.techniques), excess)
        self._write_notes()
        return num_steps

    def _stop_rule(self, challenge: Challenge) -> Callable[[Sequence[PairedBlock]], bool]:
        def stop(blocks: Sequence[PairedBlock]) -> bool:
            self._tick()
            if len(blocks) >= self.pace.max_blocks or self.budget.remaining <= 0:
                return True
            if not challenge.early_stop:
                return False
            marked = [self._marked(block) for block in blocks]
            return should_stop(marked, floor=self.floor, max_blocks=self.pace.max_blocks).stop

        return stop

    def _wants_another(self, challenge: Challenge, pairs: list[PairRecord]) -> bool:
        """Another restart, where it could still change the answer: a gain that is likely but not yet certain."""
        if not pairs or self.budget.remaining <= 0:
            return False
        if challenge.fresh or not challenge.early_stop:
            return True
        interval = compare_pairs(pairs, extra_pair_log_ratios=self._aa_log_ratios(challenge))
        return interval.low <= 1.0 + self.floor < interval.median

    def _marked(self, block: PairedBlock) -> PairedBlock:
        return dataclasses.replace(block, busy=is_busy(block.a, block.b, self._num_cpus))

    def _aa_log_ratios(self, challenge: Challenge) -> tuple[float, ...]:
        return () if challenge.a == challenge.b else pair_log_ratios(self.aa_pairs)

    # Processes

    def _plan(self, choices: Choices, *, name: str = "", role: Role = Role.CANDIDATE) -> TrialPlan:
        return TrialPlan(
            trial=name or self._new_name(choices), role=role, techniques=choices, evidence=self.evidence_request()
        )

    def _new_name(self, choices: Choices) -> str:
        self._number += 1
        return f"{self._number:03d}-" + ("+".join(choice.name for choice in choices) or "plain")[:60]

    def _start(self, plan: TrialPlan) -> LiveTrial:
        self._tick()
        return self._executor.start(plan)

    def _close(self, live: LiveTrial | None) -> None:
        if live is not None:
            record = live.close()
            if all(known.trial != record.trial for known in self._journal.trials):
                self._journal.append(record)

    def _drop_ended(self) -> None:
        """Processes that have come to their own end cannot serve in the next pair."""
        if self._incumbent is not None and self._incumbent.ended is not None:
            self._close(self._incumbent)
            self._incumbent = None

    def _patience(self) -> float:
        """The time of the executor's clock at which a trial is given up: a while past the budget, never at once."""
        return max(self.budget.deadline, self._executor.now() + 30.0)

    def _tick(self) -> None:
        self._progress.tick(
            spent=self.budget.spent, budget=self.budget.seconds, expected=max(self.budget.spent, self.budget.seconds)
        )

    # What is known of the length and speed of the run

    def _measure_pace(self, live: LiveTrial) -> None:
        """Run plain steps for two seconds or so: the time of a step, and whether the run ends."""
        num_steps, seconds, steps = 1, 0.0, 0
        while seconds < 2.0:
            block = live.run_block(num_steps, self._patience())
            if isinstance(block, Ended):
                self._note_total_steps(block)
                return
            seconds, steps = seconds + block.seconds, steps + block.num_steps
            self.step_seconds = block.seconds_per_step
            num_steps = max(1, min(num_steps * 4, round(1.0 / max(block.seconds_per_step, 1e-6))))

    def _note_total_steps(self, ended: Ended) -> None:
        if ended.outcome is Outcome.ENDED and ended.num_steps:
            self.total_steps = ended.num_steps

    def _is_short(self) -> bool:
        return self.total_steps is not None

    # The journal's neighbours on disk

    def _known_record(self, trial: str) -> WorkerRecord | None:
        finished = (Outcome.FINISHED, Outcome.ENDED)
        if not any(known.trial == trial and known.outcome in finished for known in self._journal.trials):
            return None
        try:
            text = (self._directory / "trials" / trial / "record.json").read_text(encoding="utf-8", errors="replace")
            return from_json(WorkerRecord, text)
        except (OSError, CodecError):
            return None

    def _notes_path(self) -> Path:
        return self._directory / "trials" / "pace.json"

    def _read_notes(self) -> dict:  # type: ignore[type-arg]
        try:
            notes: dict = json.loads(self._notes_path().read_text(encoding="utf-8"))  # type: ignore[type-arg]
            return notes
        except (OSError, ValueError):
            return {}

    def _write_notes(self) -> None:
        notes = {
            "total_steps": self.total_steps,
            "step_seconds": self.step_seconds,
            "seconds_to_ready": self.seconds_to_ready,
            "excess": {**self._read_notes().get("excess", {}), **self._excess},
        }
        try:
            self._notes_path().parent.mkdir(parents=True, exist_ok=True)
            self._notes_path().write_text(json.dumps(notes), encoding="utf-8")
        except OSError as error:
            raise FulltiltError(f"{self._notes_path()} cannot be written: {error.strerror or error}") from error


def pair_log_ratios(pairs: Sequence[PairRecord]) -> tuple[float, ...]:
    """The log ratio of each pair of identical processes: how far restarts differ here."""
    import math
    import statistics

    return tuple(
        statistics.median(math.log(block.a.seconds_per_step / block.b.seconds_per_step) for block in pair.blocks)
        for pair in pairs
        if pair.blocks
    )


def command_failed(ended: Ended | None) -> CommandFailed:
    """The error for a command that does not train by itself."""
    if ended is None or ended.outcome in (Outcome.ENDED, Outcome.FINISHED):
        return CommandFailed("the command trained, but left no record", hint="Is its folder for temporary files full?")
    if ended.outcome is Outcome.NO_TRAINING:
        return CommandFailed(
            "the command ended without a training step that fulltilt could see",
            hint="A step is seen when torch (Python 3.11 or newer) calls backward or an optimizer's step. "
            "Is this the command that trains? Python's flags -I, -E and -S keep fulltilt out.",
        )
    return CommandFailed(f"the command fails by itself, without fulltilt's help: {_say(ended)}")


def _say(ended: Ended) -> str:
    return ended.message or ended.outcome.value.replace("_", " ")


def _without_effect(record: WorkerRecord, challenge: Challenge) -> str:
    """Why a technique that B has and A has not did nothing; empty when all did something."""
    new = {choice.name for choice in challenge.b if choice not in challenge.a}
    for applied in record.applied:
        if applied.name in new and applied.outcome in ("no_effect", "pending"):
            return applied.detail
    return ""


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


def _text_of(choices: Choices) -> str:
    return json.dumps(to_plain(choices), sort_keys=True)
