"""The journal of a tune: one JSON line for every finished trial and comparison, appended and synced to disk.

State is a replay of the lines. A last line cut short by a kill is dropped; a broken line elsewhere is an error, as
somebody has edited the file.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fulltilt.errors import StorageError, UsageError
from fulltilt.records.codec import CodecError, from_plain, to_plain
from fulltilt.records.journal import ComparisonRecord, StartRecord, TrialRecord
from fulltilt.records.long_run import RunRecord

Line = StartRecord | TrialRecord | ComparisonRecord | RunRecord
_KINDS: dict[str, type[Line]] = {
    "start": StartRecord,
    "trial": TrialRecord,
    "comparison": ComparisonRecord,
    "run": RunRecord,
}


class Journal:
    """Opens (or begins) the journal at `path` and replays it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.start: StartRecord | None = None
        self.trials: list[TrialRecord] = []
        self.comparisons: dict[str, ComparisonRecord] = {}
        self.runs: dict[str, RunRecord] = {}
        for line in read_lines(path):
            self._take_in(line)

    def append(self, line: Line) -> None:
        """Write one line, so that it survives a power cut.

        Raises:
            StorageError: when it cannot be written (disk full, no permission).
        """
        kind = next(name for name, record_type in _KINDS.items() if isinstance(line, record_type))
        text = json.dumps({"kind": kind, **to_plain(line)}, allow_nan=False, separators=(",", ":"))
        try:
            _append_synced(self._path, text)
        except OSError as error:
            raise StorageError(
                f"the journal {self._path} cannot be written: {error.strerror or error}",
                hint="Free some space or choose another folder with --out; finished trials are kept and not run again.",
            ) from error
        self._take_in(line)

    def _take_in(self, line: Line) -> None:
        match line:
            case StartRecord():
                self.start = line
            case TrialRecord():
                self.trials.append(line)
            case ComparisonRecord():
                self.comparisons[line.key] = line
            case RunRecord():
                self.runs[line.key] = line


def read_lines(path: Path) -> Iterator[Line]:
    """The records of a journal; nothing when there is no file.

    Raises:
        UsageError: for a line that is broken, or written by a newer fulltilt.
    """
    try:
        texts = path.read_text(encoding="utf-8", errors="replace").split("\n")
    except FileNotFoundError:
        return
    except OSError as error:
        raise UsageError(f"the journal {path} cannot be read: {error.strerror or error}") from error
    for number, text in enumerate(texts[:-1], start=1):  # what stands behind the last newline was cut short by a kill
        if text.strip():
            try:
                yield _parse(text)
            except CodecError as error:
                raise UsageError(
                    f"line {number} of {path} cannot be read: {error}",
                    hint="Remove that line, or start afresh in another folder with --out.",
                ) from error


def _parse(text: str) -> Line:
    try:
        plain: Any = json.loads(text)
    except ValueError as error:
        raise CodecError(f"not JSON: {error}") from error
    if not isinstance(plain, dict) or plain.get("kind") not in _KINDS:
        raise CodecError(f"no known kind of line; it can be {', '.join(_KINDS)}")
    return from_plain(_KINDS[plain.pop("kind")], plain)


def _append_synced(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab+") as file:
        _drop_torn_line(file)
        file.write(text.encode() + b"\n")
        file.flush()
        os.fsync(file.fileno())


def _drop_torn_line(file: Any) -> None:
    """A line without its newline was cut short: writing after it would join two lines into a broken one."""
    size = file.seek(0, os.SEEK_END)
    if size == 0:
        return
    file.seek(-1, os.SEEK_END)
    if file.read(1) == b"\n":
        return
    file.seek(0)
    whole = file.read().rpartition(b"\n")
    file.truncate(len(whole[0]) + len(whole[1]))
