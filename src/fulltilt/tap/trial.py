"""The conduct of a trial: evidence, a profile, then blocks of steps on the parent's word.

    step 1 .. evidence.num_steps     evidence is collected; the baseline also observes its site
    then profile_steps               phases are timed
    then                             record.json is written, "ready" is sent, and the process waits at a step's end;
                                     every "go" runs a block, every block ends in waiting; "stop" ends the process

A script that ends by itself earlier leaves a record of what there was.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader

from fulltilt.numerics.evidence import EvidenceCollector
from fulltilt.records.codec import to_json
from fulltilt.records.record import (
    Environment,
    Evidence,
    ExceptionRecord,
    FailureRecord,
    PhaseRecord,
    SiteRecord,
    WorkerRecord,
)
from fulltilt.records.request import EvidenceRequest, TrialRequest
from fulltilt.records.traces import FAILURE_PREFIX, TRACES_FOLDER
from fulltilt.tap.control import Wire, exit_now
from fulltilt.tap.describe import Observer, describe
from fulltilt.tap.finiteness import all_finite
from fulltilt.tap.phases import PhaseTimer
from fulltilt.tap.seams.backward import GradSeam
from fulltilt.tap.seams.seeds import seed_everything
from fulltilt.tap.session import Session

_PROCESS_START = time.time()


class Trial:
    """One for each process; the first that trains claims the trial, the others only train along."""

    def __init__(self, session: Session, request: TrialRequest) -> None:
        self._session, self._request = session, request
        self._evidence_request = request.evidence or EvidenceRequest(num_steps=2)
        self._collector = EvidenceCollector(self._evidence_request, reseed=seed_everything)
        self._observer = Observer() if request.profile_steps else None
        self._phases = PhaseTimer(self._synchronize)
        self._pid = os.getpid()
        self._wire: Wire | None = None
        self._is_claimant: bool | None = None
        self._startup_seconds: float | None = None
        self._exception: ExceptionRecord | None = None
        self._phase_record: PhaseRecord | None = None
        self._evidence: Evidence | None = None
        self._site_record: SiteRecord | None = None
        self._step_seconds: list[float] = []
        self._last_edge = 0.0
        self._block_steps = self._block_end = 0
        self._not_finite_steps: tuple[int, int] | None = None
        self._has_ended = False
        self._evidence_open = True
        session.site.tie_draws = self._evidence_request.tie_draws
        self._begin_watching()

    def _begin_watching(self) -> None:
        self._session.keep_watching = True
        self._session.calls.observer = self._observe_call
        if self._observer is not None:
            observer = self._observer
            self._grad_seam = GradSeam(lambda: setattr(observer, "double_backward", True))

    def _observe_call(
        self, module: nn.Module, call: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        if self._evidence_open and torch.is_grad_enabled():
            self._session.guarded(self._collector.module_called, module, args, kwargs)
        if self._observer is not None:
            self._observer.look_for_autocast()
        return self._phases.around_call(call, args, kwargs)

    def loader_found(self, loader: DataLoader[Any]) -> None:
        if self._evidence_open and self._session.clock.has_optimizer:  # the weights are made
            self._collector.draw_otherwise()

    def module_found(self, name: str, module: nn.Module) -> None:
        if self._evidence_open:
            self._claim()
            self._collector.module_found(name, module)
            if self._observer is not None:
                self._observer.watch(module)

    def around_backward(self, call: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if self._session.conduct is not self:
            return call(*args, **kwargs)
        if self._evidence_open:
            self._claim()
            self._collector.backward_called(args[0] if args else kwargs.get("tensors", ()))
            if self._observer is not None:
                self._observer.backward_called(args, kwargs)
        result = self._phases.around_backward(call, args, kwargs)
        if not self._session.clock.has_optimizer and self._evidence_open:
            self._collector.before_step_without_optimizer()
        self._session.clock.backward_done()
        return result

    def before_step(self, name: str, optimizer: torch.optim.Optimizer) -> None:
        if self._evidence_open:
            self._claim()
            self._collector.before_step(name, optimizer)
            if self._observer is not None:
                self._observer.before_step(optimizer)
        self._phases.before_optimizer()

    def after_optimizer(self, name: str) -> None:
        self._phases.after_optimizer()
        if self._evidence_open:
            self._collector.after_optimizer(name)

    def step_done(self, num_steps: int) -> None:
        if not self._is_claimant:
            self._train_along()
            return
        assert self._wire is not None
        if self._block_end:
            self._block_step(num_steps)
            return
        self._end_step()
        self._wire.beat(num_steps)
        if self._evidence_open:
            self._evidence_step()
        elif self._phases.running and num_steps == self._collector.num_steps + self._request.profile_steps:
            self._phase_record = self._phases.stop(self._request.profile_steps)
            self._ready()

    def _train_along(self) -> None:
        """Another rank, or a later process: disturbed and watched as long as the one that is measured."""
        if self._is_claimant is None or not self._evidence_open:
            return
        self._collector.step_done()
        if self._collector.done:
            self._evidence_open = False
            self._let_go()

    def _evidence_step(self) -> None:
        self._collector.step_done()
        if self._observer is not None:
            self._observer.num_steps += 1
        self._session.guarded(self._collector.look_around)
        if not self._collector.done:
            return
        self._close_evidence()
        if self._request.profile_steps:
            self._phases.start()
        else:
            self._ready()

    def _close_evidence(self) -> None:
        self._evidence_open = False
        self._evidence = self._collector.evidence(self._session.site.loaders)
        if self._observer is not None:
            self._observer.stop()
            self._grad_seam.undo()
            self._site_record = describe(self._session.site, self._observer)
        self._collector = EvidenceCollector(  # frees what it held
            EvidenceRequest(num_steps=0), reseed=seed_everything, num_steps=self._collector.num_steps
        )

    def _ready(self) -> None:
        """All numbers are in: let go of everything that would slow a step down, and wait for the parent."""
        assert self._wire is not None
        self._let_go()
        self.write_record()
        self._wire.send(kind="ready", steps=self._session.clock.num_steps, step_seconds=self._step_seconds)
        self._await_command()

    def _let_go(self) -> None:
        """Take out what only observation needs."""
        if self._observer is not None:
            self._observer.stop()
            self._grad_seam.undo()
        if self._session.clock.has_optimizer:
            self._session.stop_watching()
        self._session.keep_watching = False
        self._session.calls.observer = None

    def _block_step(self, num_steps: int) -> None:
        assert self._wire is not None
        last = num_steps == self._block_end
        self._end_step(synchronize=last)
        self._wire.beat(num_steps)
        if last:
            seconds = self._last_edge - self._block_start
            self._wire.send(
                kind="block",
                steps=self._block_steps,
                seconds=seconds,
                step_seconds=self._step_seconds,
                finite=self._is_finite(num_steps),
            )
            self._await_command()

    def _is_finite(self, num_steps: int) -> bool:
        """Are the weights, after a block that ends at this step? Not asked again once they were not."""
        if self._not_finite_steps is None and not all_finite(self._weights()):
            self._not_finite_steps = (num_steps - self._block_steps + 1, num_steps)
        return self._not_finite_steps is None

    def _weights(self) -> Iterator[torch.Tensor]:
        for optimizer in self._session.site.optimizers.values():
            for group in optimizer.param_groups:
                yield from group["params"]
        for module in self._session.site.modules.values() if not self._session.site.optimizers else ():
            yield from module.parameters()

    def _await_command(self) -> None:
        assert self._wire is not None
        message = self._wire.receive()
        if message["kind"] == "stop":
            self.write_record()
            sys.stdout.flush()
            sys.stderr.flush()
            exit_now(0)
        self._block_steps = int(message["steps"])
        self._block_end = self._session.clock.num_steps + self._block_steps
        self._step_seconds = []
        self._synchronize()
        self._block_start = self._last_edge = time.perf_counter()

    _block_start = 0.0

    def _end_step(self, *, synchronize: bool = True) -> None:
        if synchronize:
            self._synchronize()
        now = time.perf_counter()
        self._step_seconds.append(now - self._last_edge)
        self._last_edge = now

    def _claim(self) -> None:
        """The first process that trains (rank 0 of many) is the one that is measured."""
        if self._is_claimant is not None:
            return
        self._startup_seconds = time.time() - _process_start()
        self._last_edge = time.perf_counter()
        self._is_claimant = os.environ.get("RANK", "0") == "0" and self._make_claim_file()
        if self._is_claimant:
            self._wire = Wire(self._request.control)
            self._wire.send(kind="training", pid=os.getpid(), startup_seconds=self._startup_seconds)

    def _make_claim_file(self) -> bool:
        try:
            os.close(os.open(os.path.join(self._request.directory, "claim"), os.O_CREAT | os.O_EXCL | os.O_WRONLY))
        except FileExistsError:
            return False
        return True

    def exception_raised(self, kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        """The script ends with an exception that nobody caught."""
        self._exception = ExceptionRecord(
            type_name=kind.__name__,
            type_names=tuple(f"{base.__module__}.{base.__qualname__}" for base in kind.__mro__),
            message=_both_ends(str(error)),
            where=_innermost_user_frame(trace),
            traceback="".join(traceback.format_exception(kind, error, trace))[-8000:],
        )
        self._write_failure(self._exception)
        self.write_record()

    def _write_failure(self, exception: ExceptionRecord) -> None:
        """For the parent, which puts together what all processes of the trial have left: any may be the cause."""
        failure = FailureRecord(
            pid=os.getpid(), rank=os.environ.get("RANK", ""), moment=time.time(), exception=exception
        )
        folder = os.path.join(self._request.directory, TRACES_FOLDER)
        with contextlib.suppress(OSError):  # a full disk: the end of the output tells
            os.makedirs(folder, exist_ok=True)
            _write_whole(os.path.join(folder, f"{FAILURE_PREFIX}{failure.pid}.json"), to_json(failure))

    def process_ends(self) -> None:
        """At exit: the script has ended by itself."""
        if os.getpid() != self._pid or not self._is_claimant or self._has_ended:
            return
        self._has_ended = True
        if self._evidence_open:
            self._close_evidence()
        self.write_record()
        if self._wire is not None:
            self._wire.send(kind="bye")

    def write_record(self) -> None:
        """Write `record.json`, whole or not at all."""
        if os.getpid() != self._pid or not (self._is_claimant or self._failed_unclaimed()):
            return
        path = os.path.join(self._request.directory, "record.json")
        try:
            _write_whole(path, to_json(self._make_record()))
        except OSError as error:
            if self._wire is not None:
                self._wire.send(kind="storage", message=f"{path}: {error.strerror or error}")

    def _make_record(self) -> WorkerRecord:
        return WorkerRecord(
            trial=self._request.trial,
            pid=self._pid,
            argv=tuple(sys.argv),
            environment=_environment(self._session.site.device),
            site=self._site_record,
            applied=self._session.applier.outcomes(),
            phases=self._phase_record,
            evidence=self._evidence,
            exception=self._exception,
            num_steps=self._session.clock.num_steps,
            startup_seconds=self._startup_seconds,
            notes=tuple(self._session.site.notes),
            not_finite_steps=self._not_finite_steps,
        )

    def _failed_unclaimed(self) -> bool:
        """It failed before any process trained: then its exception, the first one, is what there is to tell."""
        taken = any(os.path.exists(os.path.join(self._request.directory, name)) for name in ("claim", "record.json"))
        return self._exception is not None and not taken

    def _synchronize(self) -> None:
        if torch.cuda.is_available() and torch.cuda.is_initialized():
            torch.cuda.synchronize()


def _write_whole(path: str, text: str) -> None:
    with open(path + ".part", "w", encoding="utf-8", errors="surrogateescape") as file:
        file.write(text)
    os.replace(path + ".part", path)


def _both_ends(text: str) -> str:
    """The exception of a loader's worker holds its traceback: what it is stands at the start, why at the end."""
    return text if len(text) <= 4000 else f"{text[:1000]}\n...\n{text[-3000:]}"


def _process_start() -> float:
    """Seconds since the epoch at which this process began, from /proc where there is one."""
    try:
        with open("/proc/self/stat", encoding="ascii", errors="replace") as file:
            ticks = float(file.read().rpartition(")")[2].split()[19])
        with open("/proc/uptime", encoding="ascii") as file:
            uptime = float(file.read().split()[0])
        return time.time() - uptime + ticks / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        return _PROCESS_START


def _environment(device: torch.device) -> Environment:
    return Environment(
        python=".".join(str(part) for part in sys.version_info[:3]),
        torch=torch.__version__,
        device=device.type,
        device_name=torch.cuda.get_device_name(device) if device.type == "cuda" else "",
        num_threads=torch.get_num_threads(),
        cpu_capability=torch.backends.cpu.get_cpu_capability(),
    )


def _innermost_user_frame(trace: TracebackType | None) -> str:
    frames = traceback.extract_tb(trace)
    installed = ("site-packages", os.sep + "fulltilt" + os.sep, "<frozen", f"lib{os.sep}python")
    own = [frame for frame in frames if not any(part in frame.filename for part in installed)]
    if not frames:
        return ""
    frame = (own or frames)[-1]
    return f"{frame.filename}:{frame.lineno} in {frame.name}"
