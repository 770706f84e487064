"""Reads what processes of a trial have left: exceptions, stacks of crashes; and asks those that hang where they are."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from fulltilt.records.codec import CodecError, from_json
from fulltilt.records.record import FailureRecord
from fulltilt.records.traces import FAILURE_PREFIX, TRACES_FOLDER, where_signal

_ANSWER_SECONDS = 0.5
_MOST_ASKED = 16
_MOST_NAMED = 3
_LED_FROM = ", from "

_FRAME = re.compile(r'^\s*File "(?P<file>[^"]+)", line (?P<line>\d+),? in (?P<name>.+)$', re.MULTILINE)
_OUR_FOLDER = str(Path(__file__).resolve().parent.parent) + os.sep
_INSTALLED = ("site-packages", "dist-packages", _OUR_FOLDER, "<frozen", f"lib{os.sep}python")


@dataclass(frozen=True, kw_only=True, slots=True)
class Crash:
    """A process died of a fatal signal."""

    what: str
    """"Segmentation fault", "Aborted", "Bus error"."""
    where: str
    """The frame of the user's that it was in; empty when that is not known."""


def read_failures(scratch: Path) -> tuple[FailureRecord, ...]:
    """The exceptions that processes ended with, first things first."""
    found = []
    for path in (scratch / TRACES_FOLDER).glob(f"{FAILURE_PREFIX}*.json"):
        try:
            found.append(from_json(FailureRecord, path.read_text(encoding="utf-8", errors="replace")))
        except (OSError, CodecError):
            continue
    return tuple(sorted(found, key=lambda failure: failure.moment))


def read_crashes(scratch: Path) -> tuple[Crash, ...]:
    """What faulthandler wrote when processes died of a fatal signal, in the order of their process ids."""
    crashes: list[Crash] = []
    for path in sorted((scratch / TRACES_FOLDER).glob("*.txt"), key=_number_of):
        _, *reports = _read(path).split("Fatal Python error: ")
        crashes += [
            Crash(what=report.partition("\n")[0].strip(), where=user_frame(_current_thread(report)))
            for report in reports
        ]
    return tuple(crashes)


def ask_where(processes: Sequence[psutil.Process], scratch: Path) -> str:
    """Where hanging processes are, in words; empty when none answers. Only those are asked that listen.

    Named first are those in a line of the user's own: others wait for them.
    """
    number = where_signal()
    if number is None:
        return ""
    listening = [process for process in processes if _catches(process.pid, number)]
    answers = [
        (frame, _who(process))
        for process in sorted(listening, key=lambda process: process.pid)[:_MOST_ASKED]
        if (frame := describe_stack(_stack_of(process, number, scratch)))
    ]
    answers.sort(key=lambda answer: _LED_FROM in answer[0])
    return "; ".join(f"{who} was in {frame}" for frame, who in answers[:_MOST_NAMED])


def describe_stack(stack: str) -> str:
    """The innermost frame, and the innermost one of the user's that led there: faulthandler and Python name them so."""
    frames = list(_FRAME.finditer(stack))
    if not frames:
        return ""
    innermost, own = _say(frames[0]), user_frame(stack)
    return innermost if own in ("", innermost) else f"{innermost}{_LED_FROM}{own}"


def user_frame(stack: str) -> str:
    """Of a stack that names its innermost frame first."""
    frames = list(_FRAME.finditer(stack))
    own = [frame for frame in frames if not any(part in frame["file"] for part in _INSTALLED)]
    return _say(own[0]) if own else ""


def _say(frame: re.Match[str]) -> str:
    return f"{frame['file']}:{frame['line']} in {frame['name']}"


def _current_thread(report: str) -> str:
    """The part of the thread that got the signal; of the last thread, the main one, where none is marked."""
    threads = re.split(r"\n(?=(?:Current thread|Thread) 0x)", report)
    marked = [thread for thread in threads if thread.startswith("Current thread")]
    return marked[0] if marked else threads[-1]


def _stack_of(process: psutil.Process, number: int, scratch: Path) -> str:
    """Ask one process, and wait for what it adds to its file, or to that of the process it was forked from."""
    before = {path: _size(path) for path in (scratch / TRACES_FOLDER).glob("*.txt")}
    try:
        process.send_signal(number)
    except (psutil.Error, OSError):
        return ""
    deadline = time.monotonic() + _ANSWER_SECONDS
    answer = ""
    while time.monotonic() < deadline:
        time.sleep(0.02)
        grown = next((path for path, size in before.items() if _size(path) > size), None)
        text = _read(grown, start=before[grown]) if grown is not None else ""
        if text and text == answer:
            break  # it is not being written any more
        answer = text
    return answer


def _catches(pid: int, number: int) -> bool:
    """Does the process have a handler for the signal? Otherwise the signal would end it."""
    for line in _read(Path(f"/proc/{pid}/status")).splitlines():
        if line.startswith("SigCgt:"):
            return bool(int(line.split()[1], 16) >> (number - 1) & 1)
    return False


def _who(process: psutil.Process) -> str:
    try:
        rank = process.environ().get("RANK")
    except psutil.Error:
        rank = None
    return f"process {process.pid}" + (f" (rank {rank})" if rank else "")


def _number_of(path: Path) -> int:
    return int(path.stem) if path.stem.isdigit() else 0


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _read(path: Path, start: int = 0) -> str:
    try:
        return path.read_bytes()[start:].decode("utf-8", errors="replace")
    except OSError:
        return ""


def frames_of_traceback(text: str) -> Iterator[str]:
    """The user's frames of a Python traceback that stands in a text, outermost first."""
    for frame in _FRAME.finditer(text):
        if not any(part in frame["file"] for part in _INSTALLED):
            yield _say(frame)


__all__ = ["Crash", "ask_where", "describe_stack", "frames_of_traceback", "read_crashes", "read_failures", "user_frame"]
