"""Tells how a trial ended from what it left: exit status, record, output. Only memory running out counts as that."""

from __future__ import annotations

import re
import signal

from fulltilt.records.record import ExceptionRecord, WorkerRecord
from fulltilt.records.words import Outcome
from fulltilt.trials.contract import Ended

_OUT_OF_MEMORY_TYPES = ("MemoryError", "torch.OutOfMemoryError", "torch.cuda.OutOfMemoryError")
_OUT_OF_MEMORY_TEXT = re.compile(
    r"(CUDA|HIP|XPU|MPS backend) out of memory|out of memory\. Tried to allocate|can't allocate memory"
    r"|Cannot allocate memory|CUBLAS_STATUS_ALLOC_FAILED|CUDNN_STATUS_ALLOC_FAILED|std::bad_alloc"
    r"|cudaErrorMemoryAllocation|NCCL.*out of memory",
    re.IGNORECASE,
)
_COMPILE_MODULES = ("torch._dynamo.", "torch._inductor.", "torch.fx.experimental.symbolic_shapes.")


def classify(
    exit_status: int, record: WorkerRecord | None, output: str, *, num_steps: int, host_ran_out: bool = False
) -> Ended:
    """How a process that ended by itself ended.

    Args:
        exit_status: as from `subprocess`, negative for a signal.
        output: the end of what the command printed.
        host_ran_out: did the kernel kill a process for memory meanwhile?
    """
    exception = record.exception if record is not None else None
    outcome = _outcome(exit_status, exception, output, num_steps, host_ran_out, has_record=record is not None)
    return Ended(
        outcome=outcome,
        message=_message(outcome, exit_status, exception, output),
        exit_status=exit_status if exit_status >= 0 else 128 - exit_status,
        num_steps=num_steps,
    )


def _outcome(
    exit_status: int,
    exception: ExceptionRecord | None,
    output: str,
    num_steps: int,
    host_ran_out: bool,
    *,
    has_record: bool,
) -> Outcome:
    if exception is not None and exception.type_name not in ("SystemExit", "KeyboardInterrupt"):
        if _is_out_of_memory(exception):
            return Outcome.OUT_OF_MEMORY
        if any(name.startswith(_COMPILE_MODULES) for name in exception.type_names):
            return Outcome.COMPILE_FAILED
        return Outcome.EXCEPTION
    if exit_status == -signal.SIGKILL and host_ran_out:
        return Outcome.OUT_OF_MEMORY
    if exit_status < 0 or exit_status in (128 + signal.SIGKILL, 128 + signal.SIGSEGV, 128 + signal.SIGABRT):
        return Outcome.SIGNAL
    if exit_status and _OUT_OF_MEMORY_TEXT.search(output):
        return Outcome.OUT_OF_MEMORY
    if exit_status and not (has_record and num_steps):  # with both, the script chose its status: "target not met"
        return Outcome.EXCEPTION
    return Outcome.ENDED if num_steps else Outcome.NO_TRAINING


def _is_out_of_memory(exception: ExceptionRecord) -> bool:
    names = {name.removeprefix("builtins.") for name in exception.type_names}
    return bool(names & set(_OUT_OF_MEMORY_TYPES)) or bool(_OUT_OF_MEMORY_TEXT.search(exception.message))


def _message(outcome: Outcome, exit_status: int, exception: ExceptionRecord | None, output: str) -> str:
    if outcome in (Outcome.ENDED, Outcome.NO_TRAINING):
        return ""
    if exception is not None:
        where = f" at {exception.where}" if exception.where else ""
        return f"{exception.type_name}: {_first_line(exception.message)}{where}"
    if exit_status < 0:
        why = "the host ran out of memory" if outcome is Outcome.OUT_OF_MEMORY else _last_line(output)
        return f"killed by signal {signal_name(-exit_status)}" + (f"; {why}" if why else "")
    last = _last_line(output)
    return f"exit status {exit_status}" + (f"; it last printed: {last}" if last else "")


def signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return str(number)


def _first_line(text: str) -> str:
    return text.strip().splitlines()[0][:300] if text.strip() else ""


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:300] if lines else ""
