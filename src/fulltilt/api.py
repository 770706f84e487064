"""fulltilt in Python: each verb of the command line is a function here.

result = fulltilt.tune(["python", "train.py"], budget="10m")
status = fulltilt.run(["python", "train.py"], recipe="recipe.yaml")
"""

from __future__ import annotations

import dataclasses
import datetime
import hashlib
import math
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from fulltilt import __version__
from fulltilt.config.recipe import Recipe, read_recipe, recipe_from
from fulltilt.errors import StorageError, UsageError
from fulltilt.hardware.machine import this_machine
from fulltilt.records.codec import CodecError, from_json, to_json
from fulltilt.records.journal import ComparisonRecord, StartRecord
from fulltilt.records.long_run import LongCheckResult
from fulltilt.records.request import Request
from fulltilt.records.result import TuneResult
from fulltilt.report.folder import write_long_check, write_report
from fulltilt.search.budget import Budget
from fulltilt.search.compare import Compare
from fulltilt.search.laboratory import Laboratory
from fulltilt.search.long_check import LongCheck, LongCheckPlan
from fulltilt.search.progress import Progress, Silent
from fulltilt.search.tune import Tune
from fulltilt.techniques import all_specs
from fulltilt.trials.contract import Executor
from fulltilt.trials.environment import worker_environment
from fulltilt.trials.journal import Journal
from fulltilt.trials.subprocess_executor import DEFAULT_HANG_SECONDS, SubprocessExecutor
from fulltilt.trials.watchdog import kill_left_over
from fulltilt.units import parse_duration, parse_share

__all__ = ["compare", "report", "run", "tune", "verify"]

RecipeLike = str | os.PathLike[str] | Mapping[str, Any] | Recipe | None
Command = Sequence[str]

LONG_CHECK_STEPS = 1000
LONG_CHECK_RUNS = 4
"""Of each. With four pairs a difference of nothing is shown to be equivalent in 97 % of cases where seeds explain nine
tenths of the spread between runs; with three in 84 % (docs/verify.md)."""


def tune(
    command: Command,
    *,
    budget: str | float = "10m",
    out: str | os.PathLike[str] | None = None,
    techniques: Sequence[str] | None = None,
    progress: Progress | None = None,
    hang_seconds: float = DEFAULT_HANG_SECONDS,
    cwd: str | os.PathLike[str] | None = None,
) -> TuneResult:
    """Find the fastest verified recipe for `command`, and write it with its report into a folder.

    Args:
        command: argv of the training command, exactly as it is run: ["python", "train.py", "--lr", "3e-4"].
        budget: how long it may take, such as "10m", or seconds.
        out: the folder for results, by default `.fulltilt/<name>-<time>`. A folder with an unfinished tune of the same
            command is taken up where it stopped.
        techniques: names to try; all by default.
        progress: told what is going on.
        hang_seconds: a trial that makes no step for so long is ended.
        cwd: where the command runs.

    Returns:
        The result, as in `result.json`; `result.details["directory"]` is the folder.

    Raises:
        CommandFailed: the command fails, or never trains, without fulltilt.
        UsageError: the folder is in use, or holds another command's tune; an unknown technique.
        StorageError: the results cannot be written.
        KeyboardInterrupt: on Ctrl-C, after the report of what is known has been written.
    """
    command = check_command(command, cwd)
    specs = _chosen_specs(techniques)
    seconds = _budget_seconds(budget)
    directory = Path(out) if out is not None else new_directory(command)
    with _sole_user_of(directory):
        journal = _open_journal(directory, command)
        executor = _executor(command, directory, cwd, hang_seconds)
        laboratory = _laboratory(executor, journal, directory, seconds, progress or Silent())
        search = Tune(
            command=command,
            machine=this_machine(),
            specs=specs,
            laboratory=laboratory,
            progress=progress or Silent(),
        )
        return _carry_out(search, laboratory, journal, directory)


def _carry_out(search: Tune, laboratory: Laboratory, journal: Journal, directory: Path) -> TuneResult:
    finished = False
    try:
        search.run()
        finished = True
    finally:
        laboratory.close()
        if search.findings.baseline is not None:
            result = search.result(finished=finished)
            result = dataclasses.replace(result, details={**result.details, "directory": str(directory)})
            write_report(result, whole_comparisons(journal), directory)
    return result


def whole_comparisons(journal: Journal) -> tuple[ComparisonRecord, ...]:
    """The finished comparisons, without the pairs they were made of."""
    return tuple(record for record in journal.comparisons.values() if not record.partial)


def run(command: Command, *, recipe: RecipeLike = None, replace_process: bool = False) -> int:
    """Run `command` under a recipe and return its exit status (128 + n for signal n).

    Args:
        recipe: path of a recipe, a mapping or a Recipe; None applies nothing.
        replace_process: become the command instead of waiting for it (as the command line does); does not return.

    Raises:
        RecipeError: the recipe cannot be used.
        UsageError: the command cannot be started.
    """
    command = check_command(command)
    chosen = resolve_recipe(recipe)
    request_path = _write_request(Request(techniques=chosen.techniques))
    environment = worker_environment(os.environ, request_path)
    sys.stdout.flush()
    sys.stderr.flush()
    if replace_process:
        for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores these, and that would be inherited
            signal.signal(number, signal.SIG_DFL)
        os.execvpe(command[0], command, environment)
    status = subprocess.run(command, env=environment, check=False).returncode
    return status if status >= 0 else 128 - status


def compare(
    command: Command,
    *,
    a: RecipeLike = None,
    b: RecipeLike = None,
    budget: str | float = "3m",
    pairs: int = 3,
    out: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
    hang_seconds: float = DEFAULT_HANG_SECONDS,
) -> ComparisonRecord:
    """Measure `command` under recipe `b` against recipe `a` (nothing, by default), in fresh pairs of processes.

    Returns:
        The comparison: `speedup` is how many times faster B is, `verdict` whether B's numbers are those of A.

    Raises:
        CommandFailed, UsageError, RecipeError, StorageError: as for `tune`.
    """
    command = check_command(command)
    first, second = resolve_recipe(a).techniques, resolve_recipe(b).techniques
    seconds = _budget_seconds(budget)
    with _folder_for_comparison(out) as directory, _sole_user_of(directory):
        journal = _open_journal(directory, command)
        executor = _executor(command, directory, None, hang_seconds)
        laboratory = _laboratory(executor, journal, directory, seconds, progress or Silent())
        try:
            return Compare(laboratory=laboratory, specs=all_specs(), progress=progress or Silent()).run(
                first, second, pairs=pairs
            )
        finally:
            laboratory.close()


def verify(
    command: Command,
    *,
    recipe: RecipeLike,
    steps: int = LONG_CHECK_STEPS,
    runs: int = LONG_CHECK_RUNS,
    margin: str | float | None = None,
    seed: int = 0,
    budget: str | float | None = None,
    out: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
    hang_seconds: float = DEFAULT_HANG_SECONDS,
    cwd: str | os.PathLike[str] | None = None,
) -> LongCheckResult:
    """Train `command` for many steps, as it is and under `recipe`, with several seeds: does it learn alike?

    Args:
        steps: how many training steps a run makes; a command that ends earlier is compared whole.
        runs: how many runs of each; more give narrower intervals.
        margin: how far each number may move, such as "2%"; by default one percent, or what another seed does.
        seed: of the first run; the next have the next numbers.
        budget: how long it may take in all; None for as long as it takes.
        out: the folder for results, by default `.fulltilt/<name>-<time>`. Runs that a folder has are not repeated.

    Returns:
        The result, as in `verify.json`; `result.details["directory"]` is the folder.

    Raises:
        CommandFailed, UsageError, RecipeError, StorageError: as for `tune`.
        KeyboardInterrupt: on Ctrl-C, after the report of what is known has been written.
    """
    command = check_command(command, cwd)
    plan = LongCheckPlan(
        recipe=resolve_recipe(recipe).techniques,
        num_steps=_at_least(1, steps, "steps"),
        num_runs=_at_least(2, runs, "runs"),
        seed=_at_least(0, seed, "seed"),
        margin=_margin(margin),
    )
    seconds = _budget_seconds(budget) if budget is not None else math.inf
    directory = Path(out) if out is not None else new_directory(command)
    with _sole_user_of(directory):
        journal = _open_journal(directory, command)
        executor = _executor(command, directory, cwd, hang_seconds)
        check = LongCheck(
            plan,
            command=command,
            machine=this_machine(),
            executor=executor,
            journal=journal,
            directory=directory,
            budget=Budget(seconds, executor.now),
            progress=progress or Silent(),
        )
        return _carry_out_check(check, executor, directory)


def _carry_out_check(check: LongCheck, executor: Executor, directory: Path) -> LongCheckResult:
    try:
        check.run()
    except KeyboardInterrupt:
        if check.has_something_to_tell:
            _write_check(check, directory)
        raise
    finally:
        executor.close()
    return _write_check(check, directory)


def _write_check(check: LongCheck, directory: Path) -> LongCheckResult:
    result = dataclasses.replace(check.result(), details={"directory": str(directory)})
    write_long_check(result, directory)
    return result


def _at_least(least: int, number: int, name: str) -> int:
    if number < least:
        raise UsageError(f"{name} is {number}; it must be {least} or more")
    return number


def _margin(margin: str | float | None) -> float | None:
    try:
        return None if margin is None else parse_share(str(margin))
    except ValueError as error:
        raise UsageError(f"margin: {error}") from error


def long_check_of(directory: str | os.PathLike[str]) -> LongCheckResult | None:
    """The long check that a folder holds, its report written anew; None where there is none.

    Raises:
        UsageError: its `verify.json` cannot be read.
    """
    path = Path(directory) / "verify.json"
    try:
        result = from_json(LongCheckResult, path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, CodecError) as error:
        raise UsageError(f"{path} cannot be read: {error}") from error
    write_long_check(result, Path(directory))
    return result


def report(directory: str | os.PathLike[str]) -> TuneResult:
    """Write the report of a tune again from its `result.json` and journal, and return the result.

    Raises:
        UsageError: the folder holds no tune.
    """
    folder = Path(directory)
    path = folder / "result.json"
    try:
        result = from_json(TuneResult, path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise UsageError(
            f"{folder} holds no result.json",
            hint="Give the folder that `fulltilt tune` named, such as .fulltilt/train-20260101-120000.",
        ) from error
    except (OSError, CodecError) as error:
        raise UsageError(f"{path} cannot be read: {error}") from error
    write_report(result, whole_comparisons(Journal(folder / "journal.jsonl")), folder)
    return result


def check_command(command: Command, cwd: str | os.PathLike[str] | None = None) -> tuple[str, ...]:
    """The command as a tuple; `train.py ...` becomes `python train.py ...`.

    Raises:
        UsageError: nothing to run, or no such file.
    """
    if isinstance(command, str) or not command:
        raise UsageError(
            "no command given", hint='Write it behind two dashes: fulltilt tune -- python train.py, or ["python", ...].'
        )
    argv = tuple(command)
    if argv[0].endswith(".py") and shutil.which(argv[0]) is None:
        argv = ((shutil.which("python") and "python") or sys.executable, *argv)
    if shutil.which(argv[0]) is None:
        raise UsageError(f"{argv[0]}: no such command", hint="Is it spelled right, and its environment active?")
    _check_script(argv, Path(cwd) if cwd is not None else Path.cwd())
    return argv


def _check_script(argv: tuple[str, ...], cwd: Path) -> None:
    """A missing script is told before anything is started."""
    is_python = re.fullmatch(r"python[\d.]*", os.path.basename(argv[0])) is not None
    if is_python and len(argv) > 1 and argv[1].endswith(".py") and not (cwd / argv[1]).is_file():
        raise UsageError(f"{argv[1]}: no such file", hint=f"The current folder is {cwd}.")


def resolve_recipe(recipe: RecipeLike) -> Recipe:
    """A checked recipe from a path, a mapping or a recipe.

    Raises:
        RecipeError: it cannot be used.
    """
    if recipe is None:
        return Recipe()
    if isinstance(recipe, Recipe):
        return recipe
    options_of = {spec.name: spec.options for spec in all_specs()}
    if isinstance(recipe, Mapping):
        return recipe_from(recipe, options_of)
    return read_recipe(Path(recipe), options_of)


def new_directory(command: Command) -> Path:
    """`.fulltilt/<name>-<time>`, not taken yet."""
    script = next((word for word in command if word.endswith(".py")), command[0])
    name = re.sub(r"[^A-Za-z0-9_.-]+", "-", Path(script).stem).strip("-.") or "tune"
    stamp = datetime.datetime.now().strftime("%Y%m%d-%H%M%S")
    first = Path(".fulltilt") / f"{name}-{stamp}"
    number, directory = 1, first
    while directory.exists():
        number += 1
        directory = first.with_name(f"{first.name}-{number}")
    return directory


def _chosen_specs(names: Sequence[str] | None) -> tuple[Any, ...]:
    specs = all_specs()
    known = [spec.name for spec in specs]
    unknown = [name for name in names or () if name not in known]
    if unknown:
        raise UsageError(f"unknown technique {unknown[0]!r}; there are {', '.join(known)}")
    return tuple(spec for spec in specs if names is None or spec.name in names)


def _budget_seconds(budget: str | float) -> float:
    try:
        return parse_duration(str(budget))
    except ValueError as error:
        raise UsageError(f"budget: {error}") from error


def _open_journal(directory: Path, command: tuple[str, ...]) -> Journal:
    journal = Journal(directory / "journal.jsonl")
    script = _script_hash(command)
    if journal.start is None:
        journal.append(
            StartRecord(
                command=command,
                cwd=os.getcwd(),
                version=__version__,
                started=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
                options={"script": script},
            )
        )
    elif journal.start.options.get("script", script) != script:
        raise UsageError(
            f"the script has changed since the tune in {directory} began",
            hint="Its answers would not be about this script: choose another folder with --out.",
        )
    elif journal.start.command != command:
        raise UsageError(
            f"{directory} holds the tune of another command: {' '.join(journal.start.command)}",
            hint="Choose another folder with --out, or give that command to go on with it.",
        )
    return journal


def _script_hash(command: tuple[str, ...]) -> str:
    """Of the first Python file that the command names; empty where it names none."""
    script = next((Path(word) for word in command if word.endswith(".py") and Path(word).is_file()), None)
    return hashlib.sha256(script.read_bytes()).hexdigest()[:16] if script is not None else ""


def _executor(
    command: tuple[str, ...], directory: Path, cwd: str | os.PathLike[str] | None, hang_seconds: float
) -> Executor:
    trials = (directory / "trials").resolve()
    kill_left_over(trials)
    return SubprocessExecutor(
        command,
        directory=trials,
        cwd=Path(cwd) if cwd is not None else Path.cwd(),
        hang_seconds=hang_seconds,
    )


def _laboratory(
    executor: Executor, journal: Journal, directory: Path, seconds: float, progress: Progress
) -> Laboratory:
    return Laboratory(
        executor,
        journal,
        directory=directory,
        budget=Budget(seconds, executor.now),
        progress=progress,
        num_cpus=os.cpu_count() or 1,
    )


def _write_request(request: Request) -> Path:
    """Where the worker finds what to do. It stays for child processes; the system's temporary folder is its home."""
    handle, path = tempfile.mkstemp(prefix="fulltilt-request-", suffix=".json")
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(to_json(request))
    return Path(path)


@contextmanager
def _sole_user_of(directory: Path) -> Iterator[None]:
    """Hold the folder: two tunes in one would mix their journals."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        lock = FileLock(directory / ".lock")
        lock.acquire(timeout=0)
    except Timeout as error:
        raise UsageError(
            f"another fulltilt is working in {directory}", hint="Wait for it, or choose another folder with --out."
        ) from error
    except OSError as error:
        raise StorageError(
            f"{directory} cannot be written: {error.strerror or error}", hint="Choose another folder with --out."
        ) from error
    try:
        yield
    finally:
        lock.release()


@contextmanager
def _folder_for_comparison(out: str | os.PathLike[str] | None) -> Iterator[Path]:
    if out is not None:
        yield Path(out)
        return
    with tempfile.TemporaryDirectory(prefix="fulltilt-compare-") as folder:
        yield Path(folder)
