"""Runs trials as real processes of the user's command, entered through the environment."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil

from fulltilt.errors import StorageError
from fulltilt.records.codec import CodecError, from_json, to_json
from fulltilt.records.journal import Block, TrialRecord
from fulltilt.records.record import WorkerRecord
from fulltilt.records.request import SCRATCH_VARIABLE, Request, TrialRequest
from fulltilt.records.result import ProtectionRecord
from fulltilt.records.words import Outcome
from fulltilt.trials.contract import Ended, LiveTrial, Ready, TrialPlan
from fulltilt.trials.environment import trial_environment
from fulltilt.trials.memory_kills import count_memory_kills
from fulltilt.trials.outcome import classify
from fulltilt.trials.output_log import OutputLog
from fulltilt.trials.process_tree import ProcessTree, adopt_orphans
from fulltilt.trials.removal import remove_tree
from fulltilt.trials.sandbox.protection import Protection, choose_protection
from fulltilt.trials.traces import ask_where, read_crashes, read_failures
from fulltilt.trials.watchdog import Watchdog, kill_all

DEFAULT_HANG_SECONDS = 180.0
_POLL_SECONDS = 0.05
_EXIT_GRACE_SECONDS = 5.0
_LAST_WORDS_SECONDS = 1.0
_ABRUPT_GRACE_SECONDS = 15.0
"""Where the measured process is gone without a word, a launcher may need longer to end than after a good end."""


class SubprocessExecutor:
    """Starts trials of one command.

    Args:
        command: argv of the user's command.
        directory: each trial leaves `<directory>/<trial>/{request.json, record.json, output.log}`.
        cwd: where the command runs.
        hang_seconds: a trial that makes no step for so long is ended.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        directory: Path,
        cwd: Path,
        hang_seconds: float = DEFAULT_HANG_SECONDS,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._command, self._directory, self._cwd = list(command), directory, cwd
        self._hang_seconds = hang_seconds
        self._environment = dict(os.environ if environment is None else environment)
        self._protection = choose_protection(
            self._command, cwd=cwd, environment=self._environment, results=directory.parent
        )
        self._scratch = self._protection.scratch
        self._live: list[SubprocessTrial] = []
        self._watchdog = Watchdog(self._scratch)
        adopt_orphans()

    @property
    def protection(self) -> ProtectionRecord:
        """What keeps trials from changing the user's files."""
        return self._protection.record

    def now(self) -> float:
        return time.monotonic()

    def start(self, plan: TrialPlan) -> LiveTrial:
        scratch = self._scratch / str(len(self._live))  # short: a socket's path has 107 bytes
        directory = self._directory / plan.trial
        try:
            shutil.rmtree(directory, ignore_errors=True)
            directory.mkdir(parents=True)
            (scratch / "tmp").mkdir(parents=True, exist_ok=True)
            trial = SubprocessTrial(
                plan,
                self._command,
                directory,
                scratch,
                self._cwd,
                self._environment,
                self._hang_seconds,
                self._protection,
            )
        except OSError as error:
            raise StorageError(
                f"a trial cannot be set up in {directory}: {error.strerror or error}",
                hint="Free some space, or choose another folder with --out.",
            ) from error
        self._live.append(trial)
        return trial

    def close(self) -> None:
        for trial in self._live:
            trial.close()
        kill_all(SCRATCH_VARIABLE, self._scratch)  # one that was just being started when Ctrl-C came
        remove_tree(self._scratch)
        adopt_orphans(False)
        self._watchdog.close()


class SubprocessTrial:
    """One running command."""

    def __init__(
        self,
        plan: TrialPlan,
        command: list[str],
        directory: Path,
        scratch: Path,
        cwd: Path,
        environment: dict[str, str],
        hang_seconds: float,
        protection: Protection,
    ) -> None:
        self.plan = plan
        self.num_steps = 0
        self.ended: Ended | None = None
        self.not_finite_steps: tuple[int, int] | None = None
        self._output = OutputLog(directory / "output.log")
        self._said_bye = False
        self._directory, self._scratch, self._hang_seconds = directory, scratch, hang_seconds
        self._protection = protection
        self._startup_seconds: float | None = None
        self._record: WorkerRecord | None = None
        self._closed: TrialRecord | None = None
        self._listener = _listen(scratch / "wire")
        self._connection: socket.socket | None = None
        self._received = b""
        self._messages: list[dict[str, Any]] = []
        self._memory_kills = count_memory_kills()
        self._started = self._heard = time.monotonic()
        self._running_seconds = 0.0
        self._tree: ProcessTree | None = None
        self._process = self._start(command, cwd, environment)

    def _start(self, command: list[str], cwd: Path, environment: dict[str, str]) -> subprocess.Popen[bytes] | None:
        request_path = self._directory / "request.json"
        request = Request(
            techniques=self.plan.techniques,
            trial=TrialRequest(
                trial=self.plan.trial,
                directory=str(self._scratch),
                control=str(self._scratch / "wire"),
                evidence=self.plan.evidence,
                profile_steps=self.plan.profile_steps,
            ),
        )
        request_path.write_text(to_json(request) + "\n", encoding="utf-8")
        try:
            with self._output.open() as output:
                process = self._protection.start(
                    command,
                    scratch=self._scratch,
                    cwd=cwd,
                    env={
                        **trial_environment(environment, request_path, self._scratch),
                        **self._protection.variables(),
                    },
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
        except OSError as error:
            self.ended = Ended(
                outcome=Outcome.NOT_STARTED, message=f"{command[0]}: {error.strerror or error}", exit_status=127
            )
            return None
        self._tree = ProcessTree(process.pid, str(request_path))
        return process

    @property
    def record(self) -> WorkerRecord | None:
        if self._record is None:
            self._record = _read_record(self._scratch / "record.json")
        return self._record

    def wait_ready(self, deadline: float) -> Ready | Ended:
        message = self._await(("ready",), deadline)
        if isinstance(message, Ended):
            return message
        self._pause()
        self.num_steps = int(message["steps"])
        return Ready(
            num_steps=self.num_steps,
            step_seconds=tuple(message["step_seconds"]),
            seconds_to_ready=self._running_seconds,
        )

    def run_block(self, num_steps: int, deadline: float) -> Block | Ended:
        if self.ended is not None:
            return self.ended
        assert self._tree is not None
        steps_before = self.num_steps
        own_before, all_before = self._tree.cpu_seconds(), _machine_cpu_seconds()
        self._resume()
        self._send(kind="go", steps=num_steps)
        message = self._await(("block",), deadline)
        if isinstance(message, Ended):
            return message
        self._pause()
        own = self._tree.cpu_seconds() - own_before
        everything = _machine_cpu_seconds() - all_before
        self.num_steps = steps_before + num_steps
        if not message["finite"] and self.not_finite_steps is None:
            self.not_finite_steps = (steps_before + 1, self.num_steps)
        return Block(
            num_steps=num_steps,
            seconds=float(message["seconds"]),
            cpu_seconds=max(0.0, own),
            foreign_cpu_seconds=max(0.0, everything - own),
            step_seconds=tuple(message["step_seconds"]),
        )

    def close(self) -> TrialRecord:
        if self._closed is None:
            self._finish_politely()
            if self._tree is not None:
                self._tree.kill()
            self._collect_root()
            self._closed = self._make_record()
            self._tidy_up()
        return self._closed

    def _finish_politely(self) -> None:
        """Ask a waiting worker to stop, so that its record tells what its techniques did."""
        if self.ended is not None or self._connection is None or self._tree is None:
            return
        self._record = None
        self._tree.resume()
        self._send(kind="stop")
        deadline = time.monotonic() + _EXIT_GRACE_SECONDS
        while self._read_messages() and time.monotonic() < deadline:
            self._messages.clear()
        self.ended = Ended(outcome=Outcome.FINISHED, num_steps=self.num_steps, exit_status=None)

    def _make_record(self) -> TrialRecord:
        ended = self.ended or Ended(outcome=Outcome.FINISHED, num_steps=self.num_steps)
        return TrialRecord(
            trial=self.plan.trial,
            role=self.plan.role,
            techniques=self.plan.techniques,
            outcome=ended.outcome,
            message=ended.message,
            exit_status=ended.exit_status,
            num_steps=ended.num_steps,
            wall_seconds=time.monotonic() - self._started,
            startup_seconds=self._startup_seconds,
        )

    def _tidy_up(self) -> None:
        """Keep the record and the end of the output; drop what the script wrote."""
        if self._connection is not None:
            self._connection.close()
        self._listener.close()
        with contextlib.suppress(OSError):
            if (self._scratch / "record.json").exists():
                _copy_whole(self._scratch / "record.json", self._directory / "record.json")
        self._output.keep_tail()
        self._record = self.record
        if self.ended is not None and self.ended.outcome in (Outcome.FINISHED, Outcome.ENDED):
            self._protection.keep_caches(self._scratch)
        remove_tree(self._scratch)

    def _await(self, kinds: tuple[str, ...], deadline: float) -> dict[str, Any] | Ended:
        """The next message of one of these kinds, or how the process ended."""
        if self.ended is not None:
            return self.ended
        begun = self._heard = time.monotonic()
        try:
            while True:
                alive = self._read_messages()
                self._output.trim()
                while self._messages:
                    message = self._messages.pop(0)
                    self._hear(message)
                    if message["kind"] in kinds:
                        return message
                ended = self._check_end(alive, deadline)
                if ended is not None:
                    self.ended = ended
                    return ended
        finally:
            self._running_seconds += time.monotonic() - begun

    def _hear(self, message: dict[str, Any]) -> None:
        self._heard = time.monotonic()
        if message["kind"] == "training":
            self._startup_seconds = float(message["startup_seconds"])
        if message["kind"] == "storage":
            raise StorageError(
                f"a trial cannot write its record: {message['message']}",
                hint="Free some space there, or point TMPDIR at another disk; finished trials are kept.",
            )
        if message["kind"] == "bye":
            self._said_bye = True
        if message["kind"] == "beat":
            self.num_steps = max(self.num_steps, int(message["step"]))

    def _check_end(self, connected: bool, deadline: float) -> Ended | None:
        assert self._process is not None
        now = time.monotonic()
        if self._process.poll() is not None or not connected:
            return self._by_itself()
        limit = "no step for" if self._startup_seconds is not None else "no training step within"
        silence = f"{limit} {now - self._heard:.0f} s"
        if now - self._heard > self._hang_seconds:
            where = self._where()
            return Ended(
                outcome=Outcome.HANG,
                message=f"{silence} (--hang-timeout); it was ended" + (f"; {where}" if where else ""),
                num_steps=self.num_steps,
            )
        if now > deadline:
            return Ended(
                outcome=Outcome.OUT_OF_BUDGET,
                message=f"{silence} when the budget ended; give --budget more",
                num_steps=self.num_steps,
            )
        return None

    def _where(self) -> str:
        return ask_where(self._tree.members(), self._scratch) if self._tree is not None else ""

    def _by_itself(self) -> Ended:
        """The measured process has ended, or the whole command has."""
        assert self._process is not None
        self._hear_last_words()
        is_abrupt = self._connection is not None and not self._said_bye
        deadline = time.monotonic() + (_ABRUPT_GRACE_SECONDS if is_abrupt else _EXIT_GRACE_SECONDS)
        while self._process.poll() is None and time.monotonic() < deadline:
            self._output.trim()
            time.sleep(_POLL_SECONDS)
        self._record = None
        record = self.record
        goes_on = self._process.poll() is None  # a launcher, with its next child
        failed = record is not None and record.exception is not None
        status = int(failed) if goes_on else int(self._process.returncode)
        ended = classify(
            status,
            record,
            self._output.tail(),
            num_steps=max(self.num_steps, record.num_steps if record is not None else 0),
            host_ran_out=count_memory_kills() > self._memory_kills,
            failures=read_failures(self._scratch) if status or is_abrupt else (),
            crashes=read_crashes(self._scratch) if status or is_abrupt else (),
            vanished=goes_on and is_abrupt,
        )
        return self._with_room_left(ended) if ended.outcome is Outcome.DISK_FULL else ended

    def _with_room_left(self, ended: Ended) -> Ended:
        """Files of the script are not where it thinks: say where, and how much room there is."""
        free = shutil.disk_usage(self._scratch).free
        where = f"trials keep what the script writes in {self._scratch}, where {free / 2**20:,.0f} MiB are free"
        return dataclasses.replace(ended, message=f"{ended.message}; {where}")

    def _hear_last_words(self) -> None:
        """Its end may be seen before its good-bye is read."""
        deadline = time.monotonic() + _LAST_WORDS_SECONDS
        while self._connection is not None and not self._said_bye and time.monotonic() < deadline:
            is_open = self._read_messages()
            while self._messages:
                self._hear(self._messages.pop(0))
            if not is_open:
                return

    def _read_messages(self) -> bool:
        """Take in what has arrived, waiting a little. False once the worker has hung up."""
        source = self._connection or self._listener
        source.settimeout(_POLL_SECONDS)
        try:
            if self._connection is None:
                self._connection, _ = self._listener.accept()
                return True
            data = self._connection.recv(1 << 20)
        except TimeoutError:
            return True
        except OSError:
            data = b""
        self._received += data
        *lines, self._received = self._received.split(b"\n")
        self._messages += [json.loads(line) for line in lines]
        return bool(data) or bool(self._messages)

    def _send(self, **message: Any) -> None:
        if self._connection is not None:
            with contextlib.suppress(OSError):
                self._connection.settimeout(_EXIT_GRACE_SECONDS)
                self._connection.sendall(json.dumps(message).encode() + b"\n")

    def _pause(self) -> None:
        if self._tree is not None:
            self._tree.pause()

    def _resume(self) -> None:
        if self._tree is not None:
            self._tree.resume()

    def _collect_root(self) -> None:
        if self._process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(timeout=_EXIT_GRACE_SECONDS)


def _copy_whole(source: Path, target: Path) -> None:
    """A kill or a full disk in between leaves no half of a file."""
    part = target.with_name(target.name + ".part")
    shutil.copyfile(source, part)
    with part.open("rb") as file:
        os.fsync(file.fileno())
    part.replace(target)


def _listen(path: Path) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(str(path))
    listener.listen(1)
    return listener


def _read_record(path: Path) -> WorkerRecord | None:
    try:
        return from_json(WorkerRecord, path.read_text(encoding="utf-8", errors="replace"))
    except (OSError, CodecError):
        return None


def _machine_cpu_seconds() -> float:
    """CPU time of everything on the machine, stolen time included."""
    times = psutil.cpu_times()
    idle = times.idle + getattr(times, "iowait", 0.0)
    return float(sum(times[:8]) - idle)


__all__ = ["DEFAULT_HANG_SECONDS", "SubprocessExecutor", "SubprocessTrial"]
