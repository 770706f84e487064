"""Tells how a trial ended from what it left: exit status, exceptions, crashes, output. docs/failures.md has the table.

Only memory running out counts as that. Where several processes of a trial have failed, the one that caused it is told,
not those that lost their peer.
"""

from __future__ import annotations

import signal
from collections.abc import Sequence
from dataclasses import dataclass

from fulltilt.records.record import ExceptionRecord, FailureRecord, WorkerRecord
from fulltilt.records.words import Outcome
from fulltilt.report.printable import one_line
from fulltilt.trials import spellings
from fulltilt.trials.contract import Ended
from fulltilt.trials.traces import Crash, frames_of_traceback

_NO_FAILURE = ("SystemExit", "KeyboardInterrupt")
_COMPILE_MODULES = ("torch._dynamo.", "torch._inductor.", "torch.fx.experimental.symbolic_shapes.")
_FATAL = {
    signal.SIGILL,
    signal.SIGTRAP,
    signal.SIGABRT,
    signal.SIGBUS,
    signal.SIGFPE,
    signal.SIGKILL,
    signal.SIGSEGV,
    signal.SIGTERM,
}
SHARED_MEMORY_REMEDY = (
    "shared memory (/dev/shm), through which loader workers hand over batches, is full: make it larger "
    "(docker run --shm-size=8g) or use fewer workers"
)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Left:
    """What there is to tell from."""

    status: int
    """As from `subprocess`: negative for a signal, also where a shell or a launcher has passed one on."""
    cause: FailureRecord | None
    crash: Crash | None
    output: str
    has_record: bool
    num_steps: int
    host_ran_out: bool
    vanished: bool


def classify(
    exit_status: int,
    record: WorkerRecord | None,
    output: str,
    *,
    num_steps: int,
    host_ran_out: bool = False,
    failures: Sequence[FailureRecord] = (),
    crashes: Sequence[Crash] = (),
    vanished: bool = False,
) -> Ended:
    """How a process that ended by itself ended.

    Args:
        exit_status: as from `subprocess`, negative for a signal.
        output: the end of what the command printed.
        host_ran_out: did the kernel kill a process for memory meanwhile?
        failures: exceptions that processes of the trial ended with, first things first.
        crashes: fatal signals that processes of the trial died of, where that is why it ended.
        vanished: the training process is gone without a word, and the command that started it goes on.
    """
    left = _Left(
        status=_passed_on(exit_status),
        cause=_cause(failures or _failure_of(record)),
        crash=crashes[0] if crashes else None,
        output=output,
        has_record=record is not None,
        num_steps=num_steps,
        host_ran_out=host_ran_out,
        vanished=vanished,
    )
    outcome, message = _tell(left)
    return Ended(
        outcome=outcome,
        message=message,
        exit_status=exit_status if exit_status >= 0 else 128 - exit_status,
        num_steps=num_steps,
    )


def _tell(left: _Left) -> tuple[Outcome, str]:
    if left.cause is not None:
        known = _known_kind(left.cause.exception)
        if known is not None:
            return known, _say_exception(left.cause)
        if not _is_consequence(left.cause.exception):
            return _failed(left, left.cause)
    if left.status < 0 or left.crash is not None or left.vanished:
        by_kernel = left.status == -signal.SIGKILL or left.vanished
        return _killed(left, _by_signal(left), by_kernel=by_kernel)
    if left.cause is not None:
        return _failed(left, left.cause)
    if left.status and not (left.has_record and left.num_steps):  # with both, the script chose it: "target not met"
        return spellings.kind_of_output(left.output) or Outcome.EXCEPTION, _say_status(left)
    if left.num_steps:
        return Outcome.ENDED, ""
    return Outcome.NO_TRAINING, "it ended (exit status 0) without a training step"


def _failed(left: _Left, cause: FailureRecord) -> tuple[Outcome, str]:
    """By an exception of no known kind, or by what it says of a process that was killed."""
    victim = spellings.killed_process(cause.exception, left.output)
    if victim is not None:
        message, says = f"{victim}{_where_crashed(left)}", cause.exception.message
        return _killed(left, message, by_kernel=victim.by in ("", "SIGKILL"), says=says)
    if any(name.startswith(_COMPILE_MODULES) for name in cause.exception.type_names):
        return Outcome.COMPILE_FAILED, _say_exception(cause)
    return Outcome.EXCEPTION, _say_exception(cause)


def _killed(left: _Left, message: str, *, by_kernel: bool, says: str = "") -> tuple[Outcome, str]:
    """By a signal; which may have been for memory."""
    if by_kernel and left.host_ran_out:
        return Outcome.OUT_OF_MEMORY, f"{message}; the host ran out of memory"
    if "SIGBUS" in message and spellings.is_shared_memory(f"{says}\n{left.output}"):
        return Outcome.OUT_OF_MEMORY, f"{message}; {SHARED_MEMORY_REMEDY}"
    if "SIGABRT" in message and spellings.kind_of_output(left.output) is Outcome.OUT_OF_MEMORY:
        return Outcome.OUT_OF_MEMORY, f"{message}; {_last_line(left.output)}"
    return Outcome.SIGNAL, message


def _by_signal(left: _Left) -> str:
    if left.status < 0 and not (left.status == -signal.SIGTERM and left.crash is not None):
        last = "" if left.crash is not None else _last_line(left.output)
        return f"killed by signal {signal_name(-left.status)}{_where_crashed(left)}" + (f"; {last}" if last else "")
    if left.crash is None:
        return "the training process was killed, or ended itself by os._exit; what started it goes on"
    return f"a process of it was killed by signal {spellings.signal_of(left.crash.what)}{_where_crashed(left)}"


def _where_crashed(left: _Left) -> str:
    return f" at {left.crash.where}" if left.crash is not None and left.crash.where else ""


def _cause(failures: Sequence[FailureRecord]) -> FailureRecord | None:
    """The most telling one, the first of its kind."""
    real = [failure for failure in failures if failure.exception.type_name not in _NO_FAILURE]
    return min(real, key=lambda failure: _rank(failure.exception), default=None)


def _rank(exception: ExceptionRecord) -> int:
    if _known_kind(exception) is not None:
        return 0
    if spellings.killed_process(exception) is not None:
        return 1
    return 3 if _is_consequence(exception) else 2


def _known_kind(exception: ExceptionRecord) -> Outcome | None:
    """Out of memory, disk full; None for any other exception."""
    return spellings.kind_of_exception(exception.type_names, exception.message)


def _is_consequence(exception: ExceptionRecord) -> bool:
    """Does it only say that another process is gone?"""
    return spellings.is_lost_peer(exception.type_names, exception.message)


def _failure_of(record: WorkerRecord | None) -> tuple[FailureRecord, ...]:
    if record is None or record.exception is None:
        return ()
    return (FailureRecord(pid=record.pid, rank="", moment=0.0, exception=record.exception),)


def _passed_on(exit_status: int) -> int:
    """Shells end with 128 + n after a child was killed by signal n, Python's `sys.exit(process.returncode)` with -n."""
    for number in _FATAL:
        if exit_status in (128 + number, 256 - number):
            return -int(number)
    return exit_status


def _say_exception(failure: FailureRecord) -> str:
    exception = failure.exception
    inner = spellings.inner_traceback(exception.message)
    if inner:  # what failed in a process of its own, handed on
        frames = list(frames_of_traceback(inner))
        what, where = _last_line(inner), frames[-1] if frames else exception.where
        via = f" ({_first_line(exception.message).strip(' -.:')})"
    else:
        what, where, via = f"{exception.type_name}: {_first_line(exception.message)}", exception.where, ""
    rank = f" (rank {failure.rank})" if failure.rank not in ("", "0") else ""
    remedy = f"; {SHARED_MEMORY_REMEDY}" if spellings.is_shared_memory(exception.message) else ""
    return what + (f" at {where}" if where else "") + via + rank + remedy


def _say_status(left: _Left) -> str:
    last = _last_line(left.output)
    return f"exit status {left.status}" + (f"; it last printed: {last}" if last else "")


def signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return str(number)


def _first_line(text: str) -> str:
    return _cut(one_line(text.strip().splitlines()[0])) if text.strip() else ""


def _last_line(text: str) -> str:
    """Of a progress bar, what it shows last."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return _cut(one_line(lines[-1])) if lines else ""


def _cut(text: str) -> str:
    return text[:300]
