"""Runs training scripts under the real tap, each in a process forked from one that has torch loaded, and judges them.

A training of eight steps takes a tenth of a second in this way, and so thousands of trials fit into a test run. What is
recorded, and how it is judged, is the product's own.
"""

from __future__ import annotations

import concurrent.futures
import dataclasses
import hashlib
import multiprocessing
import os
import runpy
import socket
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

from faults.change import Change
from fulltilt.records.codec import from_json
from fulltilt.records.journal import VerdictRecord
from fulltilt.records.record import WorkerRecord
from fulltilt.records.request import EvidenceRequest, Request, TechniqueChoice, TrialRequest
from fulltilt.records.words import Role
from fulltilt.search.verdicts import Judge, own_rounding

NUM_PROCESSES = 2
_TIMEOUT_SECONDS = 120


@dataclasses.dataclass(frozen=True)
class Training:
    """One training: a script, perhaps a change to it, and what is to be recorded."""

    command: tuple[str, ...]
    request: EvidenceRequest
    change: str = ""
    repetition: int = 0
    profile_steps: int = 0
    """With some the site is described too."""


class Workbench:
    """Trains each training once, some at a time; `close()` ends it."""

    def __init__(self) -> None:
        os.environ["OMP_NUM_THREADS"] = "1"  # before the server starts: threads do not survive a fork
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(["faults.gallery", "fulltilt.tap.entry", "torch._dynamo"])
        self._pool = concurrent.futures.ThreadPoolExecutor(NUM_PROCESSES)
        self._lock = threading.Lock()
        self._judges = concurrent.futures.ThreadPoolExecutor(2 * NUM_PROCESSES)
        self._verdicts: dict[tuple[Change, int], concurrent.futures.Future[tuple[VerdictRecord, ...]]] = {}
        self._records: dict[Training, concurrent.futures.Future[WorkerRecord]] = {}
        self._folder = tempfile.TemporaryDirectory(prefix="ft-faults-")

    def begin(self, training: Training) -> concurrent.futures.Future[WorkerRecord]:
        """Have it trained, soon."""
        with self._lock:
            if training not in self._records:
                self._records[training] = self._pool.submit(self._train, training)
            return self._records[training]

    def record(self, training: Training) -> WorkerRecord:
        return self.begin(training).result()

    def judge(self, change: Change, seed: int) -> concurrent.futures.Future[tuple[VerdictRecord, ...]]:
        """Have it judged, soon."""
        with self._lock:
            if (change, seed) not in self._verdicts:
                self._verdicts[change, seed] = self._judges.submit(verdicts_of, self, change, seed)
            return self._verdicts[change, seed]

    def close(self) -> None:
        self._judges.shutdown(cancel_futures=True)
        self._pool.shutdown(cancel_futures=True)
        self._folder.cleanup()

    def _train(self, training: Training) -> WorkerRecord:
        name = hashlib.sha256(repr(training).encode()).hexdigest()[:16]
        folder = Path(self._folder.name) / name
        folder.mkdir()
        process = self._context.Process(target=_train_in_process, args=(training, str(folder)))
        process.start()
        process.join(_TIMEOUT_SECONDS)
        if process.is_alive():
            process.kill()
            process.join()
            raise TimeoutError(f"{training} did not end")
        record = folder / "record.json"
        if not record.exists():
            raise RuntimeError(f"{training} left no record: {(folder / 'output').read_text()[-2000:]}")
        return from_json(WorkerRecord, record.read_text(encoding="utf-8"))


def _train_in_process(training: Training, folder: str) -> None:
    from faults.gallery import find
    from fulltilt.tap import entry

    output = open(os.path.join(folder, "output"), "w")  # noqa: SIM115
    os.dup2(output.fileno(), 1)
    os.dup2(output.fileno(), 2)
    os.chdir(folder)
    os.environ["FULLTILT_TRIAL"] = "1"
    multiprocessing.set_start_method("fork", force=True)  # for workers of loaders, as in any script
    request = Request(
        techniques=(TechniqueChoice(name=training.change),) if training.change else (),
        trial=TrialRequest(
            trial="training",
            directory=folder,
            control=_serve(folder),
            evidence=training.request,
            profile_steps=training.profile_steps,
        ),
    )
    session = entry.start(request, find)
    sys.argv = list(training.command)
    try:
        runpy.run_path(training.command[0], run_name="__main__")
    except BaseException as error:
        sys.excepthook(type(error), error, error.__traceback__)
    conduct: Any = session.conduct
    conduct.process_ends()


def _serve(folder: str) -> str:
    """The parent's end of the wire: a trial that is ready is told to stop."""
    path = os.path.join(folder, "wire")
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listening.bind(path)
    listening.listen()

    def serve() -> None:
        connection, _ = listening.accept()
        with connection, connection.makefile("r") as lines:
            for line in lines:
                if '"ready"' in line:
                    connection.sendall(b'{"kind": "stop"}\n')

    threading.Thread(target=serve, daemon=True).start()
    return path


@dataclasses.dataclass
class Laboratory:
    """What a `Judge` asks of a laboratory: records of the untouched script, or of it under the change."""

    workbench: Workbench
    change: Change
    seed: int
    one_at_a_time: bool = False

    def evidence_request(self) -> EvidenceRequest:
        return EvidenceRequest(num_steps=self.change.num_steps)

    def record_of(
        self, trial: str, role: Role, *, evidence: EvidenceRequest, techniques: tuple[TechniqueChoice, ...] = ()
    ) -> WorkerRecord:
        change = self.change.name if techniques else ""
        repetition = int(role is Role.REPEAT and trial == "repeat")
        return self.workbench.record(self.training(evidence, change, repetition))

    def training(self, request: EvidenceRequest, change: str = "", repetition: int = 0) -> Training:
        command = (*self.change.command, "--seed", str(self.seed))
        return Training(command, request, change, repetition)


def verdicts_of(workbench: Workbench, change: Change, seed: int, *, examined: bool = True) -> tuple[VerdictRecord, ...]:
    """The product's verdicts on one change of one script with one seed; a change must be kept by all.

    One that draws other random numbers is judged among other draws and, if it is to be `examined`, once more with those
    of the untouched script.
    """
    laboratory: Any = Laboratory(workbench, change, seed)
    request = laboratory.evidence_request()
    baseline = workbench.record(dataclasses.replace(laboratory.training(request), profile_steps=1))
    assert baseline.evidence is not None
    candidate = workbench.record(laboratory.training(request, change.name))
    assert candidate.exception is None or candidate.exception.type_name == "SystemExit", candidate.exception
    assert candidate.evidence is not None
    failed = [known for known in candidate.applied if known.outcome != "applied"]
    assert not failed, failed
    judge = Judge(laboratory, baseline.evidence, lambda name: change.spec, own_rounding=own_rounding(baseline.site))
    choices = (TechniqueChoice(name=change.name),)
    verdict = judge(candidate.evidence, choices)
    return (verdict, judge.examine(choices)) if change.changes_draws and examined else (verdict,)
