"""Trials that are not run: step times and numbers come from a model, time passes on a simulated clock.

For testing search, statistics, resume and report without any training; exact where the model has no noise.
"""

from __future__ import annotations

import dataclasses
import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from fulltilt.records.codec import to_json
from fulltilt.records.curve import CurveRecord
from fulltilt.records.journal import Block, TrialRecord
from fulltilt.records.record import (
    AppliedRecord,
    Environment,
    Evidence,
    ModuleRecord,
    OptimizerRecord,
    ParameterEvidence,
    PhaseRecord,
    SiteRecord,
    TensorSketch,
    WorkerRecord,
)
from fulltilt.records.request import EvidenceRequest, TechniqueChoice
from fulltilt.records.words import Outcome
from fulltilt.trials.contract import Ended, Ready, TrialPlan

MOCK_PHASES = PhaseRecord(
    num_steps=6, step_seconds=0.1, data_wait=None, forward=0.04, backward=0.05, optimizer=0.008, other=0.002
)


@dataclass(frozen=True, kw_only=True, slots=True)
class MockScript:
    """A training script that exists only as numbers."""

    step_seconds: float = 0.1
    speedups: Mapping[str, float] = field(default_factory=dict)
    """Technique -> how many times faster it makes a step."""
    shifts: Mapping[str, float] = field(default_factory=dict)
    """Technique -> by how much, relatively, it moves the numbers."""
    late_shifts: Mapping[str, tuple[int, float]] = field(default_factory=dict)
    """Technique -> the step from which on it moves losses, and by how much, relatively."""
    no_effect: frozenset[str] = frozenset()
    failures: Mapping[str, Ended] = field(default_factory=dict)
    """Technique -> how a trial under it ends; "" is the untouched command."""
    startup_seconds: float = 2.0
    extra_startup: Mapping[str, float] = field(default_factory=dict)
    total_steps: int | None = None
    crashes_at: Mapping[str, int] = field(default_factory=dict)
    """Technique -> step in which a run under it raises; "" is the untouched command."""
    not_finite_at: Mapping[str, int] = field(default_factory=dict)
    """Technique -> step in which weights become nan under it; "" is the untouched command."""
    exclusive: bool = False
    """A second copy cannot start while one lives."""
    curve: Callable[[Sequence[str], EvidenceRequest], Sequence[float]] | None = None
    """Of a long run: the losses of its steps, from the names of its techniques and from what was asked."""
    output: Callable[[Sequence[str], EvidenceRequest], str] | None = None
    """What it prints."""
    crowded: frozenset[str] = frozenset()
    """Techniques under which a run does not fit in memory beside another."""
    restart_sd: float = 0.0
    block_sd: float = 0.0
    phases: PhaseRecord = MOCK_PHASES


class MockExecutor:
    """An `Executor` over a MockScript. `started` lists the plans of all trials, in order."""

    def __init__(
        self,
        script: MockScript,
        *,
        seed: int = 0,
        on_start: Callable[[TrialPlan], None] | None = None,
        directory: Path | None = None,
    ) -> None:
        self._script = script
        self.directory = directory
        """Where trials leave their record.json, as real ones do; None leaves none."""
        self._random = random.Random(seed)
        self._on_start = on_start or (lambda plan: None)
        self.clock = 0.0
        self.started: list[TrialPlan] = []
        self.live: list[MockTrial] = []

    @property
    def protection(self) -> None:
        return None

    def now(self) -> float:
        return self.clock

    def start(self, plan: TrialPlan) -> MockTrial:
        self._on_start(plan)
        self.started.append(plan)
        trial = MockTrial(self, self._script, plan, self._random)
        self.live.append(trial)
        return trial

    def close(self) -> None:
        for trial in list(self.live):
            trial.close()


class MockTrial:
    """A `LiveTrial` whose steps take no time."""

    def __init__(self, executor: MockExecutor, script: MockScript, plan: TrialPlan, dice: random.Random) -> None:
        self.plan, self.num_steps = plan, 0
        self.ended: Ended | None = None
        self.not_finite_steps: tuple[int, int] | None = None
        self._executor, self._script, self._dice = executor, script, dice
        self._names = [choice.name for choice in plan.techniques]
        speedup = math.prod(script.speedups.get(name, 1.0) for name in self._names)
        self._step_seconds = script.step_seconds / speedup * math.exp(dice.gauss(0.0, script.restart_sd))
        self._record: WorkerRecord | None = None

    @property
    def record(self) -> WorkerRecord | None:
        return self._record

    def wait_ready(self, deadline: float) -> Ready | Ended:
        failure = self._failure()
        if failure is not None:
            self.ended = failure
            return failure
        startup = self._script.startup_seconds + sum(self._script.extra_startup.get(name, 0.0) for name in self._names)
        evidence = self.plan.evidence.num_steps if self.plan.evidence is not None else 0
        steps = self._advance(evidence + self.plan.profile_steps)
        self._executor.clock += startup + sum(steps)
        self._print()
        self._record = self._make_record()
        if self.ended is not None:
            return self.ended
        return Ready(num_steps=self.num_steps, step_seconds=steps, seconds_to_ready=startup + sum(steps))

    def run_block(self, num_steps: int, deadline: float) -> Block | Ended:
        steps = self._advance(num_steps)
        if self.ended is not None:
            return self.ended
        self._executor.clock += sum(steps)
        if self.not_finite_steps is None and self.num_steps >= self._first_not_finite():
            self.not_finite_steps = (self.num_steps - num_steps + 1, self.num_steps)
        return Block(num_steps=num_steps, seconds=sum(steps), step_seconds=steps, foreign_cpu_seconds=0.0)

    def close(self) -> TrialRecord:
        if self in self._executor.live:
            self._executor.live.remove(self)
        ended = self.ended or Ended(outcome=Outcome.FINISHED, num_steps=self.num_steps)
        self._leave_record()
        return TrialRecord(
            trial=self.plan.trial,
            role=self.plan.role,
            techniques=self.plan.techniques,
            outcome=ended.outcome,
            message=ended.message,
            exit_status=ended.exit_status,
            num_steps=self.num_steps,
        )

    def _print(self) -> None:
        if self._script.output is not None and self._executor.directory is not None and self.plan.evidence is not None:
            path = self._executor.directory / self.plan.trial / "output.log"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(self._script.output(self._names, self.plan.evidence), encoding="utf-8")

    def _leave_record(self) -> None:
        if self._record is not None:
            self._record = replace(self._record, not_finite_steps=self.not_finite_steps)
        if self._executor.directory is not None and self._record is not None:
            path = self._executor.directory / self.plan.trial / "record.json"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(to_json(self._record), encoding="utf-8")

    def _failure(self) -> Ended | None:
        if self._script.exclusive and len(self._executor.live) > 1:
            return Ended(outcome=Outcome.EXCEPTION, message="address already in use", exit_status=1)
        if self._script.crowded & set(self._names) and len(self._executor.live) > 1:
            return Ended(outcome=Outcome.OUT_OF_MEMORY, message="OutOfMemoryError: crowded", exit_status=1)
        names = self._names or [""]
        return next((self._script.failures[name] for name in names if name in self._script.failures), None)

    def _first_not_finite(self) -> int:
        return min((self._script.not_finite_at.get(name, 1 << 60) for name in ["", *self._names]), default=1 << 60)

    def _advance(self, num_steps: int) -> tuple[float, ...]:
        crash = min(self._script.crashes_at.get(name, 1 << 60) for name in self._names or [""])
        if self.num_steps + num_steps > crash:
            self.ended = Ended(outcome=Outcome.EXCEPTION, message="RuntimeError: odd batch", exit_status=1)
            return ()
        total = self._script.total_steps
        if total is not None and self.num_steps + num_steps > total:
            num_steps = max(0, total - self.num_steps)
            self.ended = Ended(outcome=Outcome.ENDED, exit_status=0, num_steps=total)
        self.num_steps += num_steps
        seconds = self._step_seconds * math.exp(self._dice.gauss(0.0, self._script.block_sd))
        return (seconds,) * num_steps

    def _make_record(self) -> WorkerRecord:
        evidence_steps = self.plan.evidence.num_steps if self.plan.evidence is not None else 0
        reached = self.num_steps >= evidence_steps + self.plan.profile_steps
        return WorkerRecord(
            trial=self.plan.trial,
            pid=1,
            argv=("train.py",),
            environment=Environment(
                python="3.11.0", torch="2.13.0", device="cpu", device_name="", num_threads=2, cpu_capability="AVX512"
            ),
            site=mock_site(),
            applied=tuple(self._applied(choice) for choice in self.plan.techniques),
            phases=self._script.phases if self.plan.profile_steps and reached else None,
            evidence=self._with_late_shifts(mock_evidence(min(evidence_steps, self.num_steps), self._shift())),
            curve=self._curve(),
            num_steps=self.num_steps,
            startup_seconds=self._script.startup_seconds,
        )

    def _curve(self) -> CurveRecord | None:
        if self._script.curve is None or self.plan.evidence is None or not self.plan.evidence.whole_curve:
            return None
        losses = tuple(self._script.curve(self._names, self.plan.evidence))[: self.num_steps]
        return CurveRecord(num_steps=len(losses), losses={"AdamW#0": losses}, evaluations={})

    def _applied(self, choice: TechniqueChoice) -> AppliedRecord:
        if choice.name in self._script.no_effect:
            return AppliedRecord(name=choice.name, outcome="no_effect", detail="nothing to do in the mock")
        return AppliedRecord(name=choice.name, outcome="applied", detail=f"{choice.name} in the mock")

    def _with_late_shifts(self, evidence: Evidence) -> Evidence:
        for name in self._names:
            first, shift = self._script.late_shifts.get(name, (0, 0.0))
            losses = (
                tuple(loss * (1 + shift * (step + 1 >= first)) for loss in losses)
                for step, losses in enumerate(evidence.losses)
            )
            evidence = dataclasses.replace(evidence, losses=tuple(losses))
        return evidence

    def _shift(self) -> float:
        shift = sum(self._script.shifts.get(name, 0.0) for name in self._names)
        request = self.plan.evidence
        if request is not None and request.perturb_relative:
            shift += request.perturb_relative * (1 if request.perturb_seed % 2 else -1)
        return shift


def mock_evidence(num_steps: int, shift: float = 0.0) -> Evidence:
    """Evidence of a run whose every number is moved relatively by `shift`."""
    scale = 1.0 + shift
    start = _sketch((1.0, 2.0, -1.0, 0.5))
    return Evidence(
        num_steps=num_steps,
        losses=tuple((2.0 * scale / (step + 1),) for step in range(num_steps)),
        gradient_norms=tuple(scale for _ in range(num_steps)),
        parameters={
            "Model#0.weight": ParameterEvidence(
                shape=(4,),
                dtype="float32",
                start=start,
                end=_sketch((0.9 - 0.1 * shift, 1.9 - 0.1 * shift, -1.1 - 0.1 * shift, 0.4 - 0.1 * shift)),
                first_gradient=_sketch((scale, scale, scale, scale)),
            )
        },
        buffers={},
        state_dict={"Model#0": "Model", "Model#0.weight": "float32 (4,)"},
        optimizer_state={"AdamW#0.group0.lr": "float"},
        aliases=(),
        executed_steps={"AdamW#0": num_steps},
        draws="0",
    )


def mock_site() -> SiteRecord:
    """A small float32 model with AdamW, no loader."""
    return SiteRecord(
        device="cpu",
        device_name="",
        modules=(
            ModuleRecord(
                name="Model#0",
                class_name="Model",
                num_parameters=4,
                num_trainable=4,
                dtypes=("float32",),
                layer_counts={"Linear": 1},
                stable_shapes=True,
                num_input_shapes=1,
            ),
        ),
        optimizers=(
            OptimizerRecord(
                name="AdamW#0",
                class_name="AdamW",
                num_parameters=4,
                implementation="for-loop",
                sparse_gradients=False,
                uses_closure=False,
            ),
        ),
    )


def _sketch(values: Sequence[float]) -> TensorSketch:
    return TensorSketch(
        norm=math.sqrt(sum(value * value for value in values)), projection=tuple(values), numel=len(values)
    )
