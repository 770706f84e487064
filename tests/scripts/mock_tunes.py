"""Tunes over a mock executor, with real files, each in a forked process that may be killed with SIGKILL.

Arguments: the folder, the script (a name below). Lines on standard input, each answered with one line:

    end              run to the end: "done SECONDS", and the result is in plain.json
    time SECONDS     kill it after so long
    point NUMBER     kill it before it executes that many lines of what writes files and decides
    torn NUMBER BYTES   kill it at that append to the journal, with so many bytes of the line not yet written
    count            run to the end in another folder: how many points there are, and how many appends

Each start of a trial is a line in starts.txt; one of a finished trial begins with "AGAIN".
"""

import dataclasses
import json
import os
import shutil
import signal
import sys
import time
from pathlib import Path

from fulltilt.hardware.machine import this_machine
from fulltilt.records.codec import to_plain
from fulltilt.records.words import Numerics, Outcome
from fulltilt.report.folder import write_report
from fulltilt.search.budget import Budget
from fulltilt.search.laboratory import Laboratory
from fulltilt.search.progress import Silent
from fulltilt.search.tune import Tune
from fulltilt.technique import Spec, Stage
from fulltilt.trials.contract import Ended
from fulltilt.trials.journal import Journal
from fulltilt.trials.mock import MockExecutor, MockScript

TRACED = ("trials/journal.py", "trials/mock.py", "search/notes.py", "search/laboratory.py", "search/processes.py")
HANG = Ended(outcome=Outcome.HANG, message="no step for 180 s; it was ended")

SCRIPTS = {
    "various": MockScript(
        speedups={"fast": 1.5, "faster": 1.3, "slow": 0.7, "wrong": 4.0, "burns": 2.0},
        shifts={"wrong": 0.3},
        no_effect=frozenset({"idle"}),
        failures={"hangs": HANG},
        crashes_at={"crashes": 20},
        not_finite_at={"burns": 25},
        extra_startup={"fast": 20.0},
    ),
    "crowded": MockScript(
        speedups={"fast": 1.5, "faster": 1.3, "slow": 0.7}, crowded=frozenset({"faster", "slow"}), step_seconds=0.2
    ),
    "short": MockScript(speedups={"fast": 1.5, "slow": 0.7}, total_steps=60),
}
NAMES = ("fast", "slow", "wrong", "idle", "hangs", "crashes", "burns", "faster")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    level: int = 1


def spec(name):
    return Spec(
        name=name,
        summary="",
        options=Options,
        stage=Stage.MODEL,
        numerics=Numerics.ROUNDING,
        apply="none:none",
        candidates=lambda machine, site, phases: (Options(), Options(level=2)),
        rounding=lambda options: 2.0**-8,
    )


def tune(folder, script):
    finished = folder / "journal.jsonl"

    def note_start(plan):
        known = finished.read_text().rpartition("\n")[0] if finished.exists() else ""
        again = "AGAIN " if f'"trial":"{plan.trial}"' in known else ""
        with (folder / "starts.txt").open("a") as file:
            file.write(f"{again}{plan.trial}\n")

    executor = MockExecutor(SCRIPTS[script], on_start=note_start, directory=folder / "trials")
    journal = Journal(finished)
    laboratory = Laboratory(
        executor,
        journal,
        directory=folder,
        budget=Budget(1e6, executor.now),
        progress=Silent(),
        num_cpus=2,
    )
    search = Tune(
        command=("python", "train.py"),
        machine=this_machine(),
        specs=[spec(name) for name in NAMES],
        laboratory=laboratory,
        progress=Silent(),
    )
    result = search.run()
    laboratory.close()
    write_report(result, (), folder)
    plain = to_plain(result)
    part = folder / "plain.part"
    part.write_text(json.dumps({key: value for key, value in plain.items() if key not in ("trials", "wall_seconds")}))
    part.replace(folder / "plain.json")


class Points:
    """Counts the lines executed in the traced files, and kills this process before the one that is asked for."""

    def __init__(self, *, die_at=0, die_at_append=0):
        self.lines = self.appends = 0
        self._die_at, self._die_at_append = die_at, die_at_append

    def trace(self, frame, event, argument):
        return self._line if frame.f_code.co_filename.endswith(TRACED) else None

    def _line(self, frame, event, argument):
        if event == "line":
            self.lines += 1
            is_append = frame.f_code.co_name == "_append_synced" and "path" in frame.f_locals
            is_written = is_append and frame.f_lineno == frame.f_code.co_firstlineno + SYNC_LINE
            self.appends += is_written
            if self.lines == self._die_at or (is_written and self.appends == self._die_at_append):
                os.kill(os.getpid(), signal.SIGKILL)
        return self._line


def sync_line():
    """Where in `_append_synced` the line is written and not yet synced."""
    import inspect

    from fulltilt.trials import journal

    lines, _ = inspect.getsourcelines(journal._append_synced)
    return next(number for number, line in enumerate(lines) if "os.fsync" in line)


SYNC_LINE = sync_line()


def start(folder, script, points=None):
    sys.stdout.flush()
    pid = os.fork()
    if pid:
        return pid
    try:
        if points is not None:
            sys.settrace(points.trace)
        tune(folder, script)
        sys.settrace(None)
        if points is not None:
            (folder / "points.json").write_text(json.dumps([points.lines, points.appends]))
        os._exit(0)
    finally:
        os._exit(1)


def has_ended_well(pid):
    return os.waitpid(pid, 0)[1] == 0


def cut_last_line(path, num_bytes):
    """Never more than the line: what stands before it was synced."""
    text = path.read_bytes()
    length = len(text) - text[:-1].rfind(b"\n") - 1
    os.truncate(path, len(text) - min(num_bytes, length))


def answer(folder, script, kind, *numbers):
    if kind == "count":
        other = folder.with_name(folder.name + "-count")
        shutil.rmtree(other, ignore_errors=True)
        other.mkdir()
        assert has_ended_well(start(other, script, Points()))
        return (other / "points.json").read_text()
    if kind == "end":
        begun = time.monotonic()
        is_done = has_ended_well(start(folder, script))
        return f"done {time.monotonic() - begun:.3f}" if is_done else "failed"
    if kind == "time":
        pid = start(folder, script)
        time.sleep(numbers[0])
        os.kill(pid, signal.SIGKILL)
    elif kind == "point":
        pid = start(folder, script, Points(die_at=numbers[0]))
    else:
        pid = start(folder, script, Points(die_at_append=numbers[0]))
    _, status = os.waitpid(pid, 0)
    if os.WIFSIGNALED(status) and kind == "torn":
        cut_last_line(folder / "journal.jsonl", numbers[1])
    return "killed" if os.WIFSIGNALED(status) else "done" if status == 0 else "failed"


def main():
    folder, script = Path(sys.argv[1]), sys.argv[2]
    folder.mkdir(parents=True, exist_ok=True)
    for line in sys.stdin:
        kind, *numbers = line.split()
        print(answer(folder, script, kind, *[float(n) if kind == "time" else int(n) for n in numbers]), flush=True)


if __name__ == "__main__":
    main()
