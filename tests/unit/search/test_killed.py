"""kill -9 of the tuner, at any moment, any number of times: the same result, and no finished trial is run again."""

import json
import os
import random
import subprocess
import sys

import pytest

from fulltilt.records.journal import StartRecord
from fulltilt.trials.journal import Journal, read_lines

KILLS = 30


@pytest.fixture
def tunes(tmp_path, scripts):
    """tunes(script, name="tune") -> a function that hands one line to `mock_tunes.py` and gives its answer."""
    processes = []

    def start(script, name="tune"):
        process = subprocess.Popen(
            [sys.executable, str(scripts / "mock_tunes.py"), str(tmp_path / name), script],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"},
        )
        processes.append(process)

        def ask(line):
            process.stdin.write(f"{line}\n")
            process.stdin.flush()
            return process.stdout.readline().strip()

        return ask

    yield start
    for process in processes:
        process.communicate(timeout=60)


@pytest.fixture
def undisturbed(tunes, tmp_path):
    """undisturbed(script) -> the result of a tune that nobody kills, the trials it starts, and how long it takes."""

    def run(script):
        done, seconds = tunes(script, "undisturbed")("end").split()
        assert done == "done"
        return *outcome_of(tmp_path / "undisturbed"), float(seconds)

    return run


def outcome_of(folder):
    starts = (folder / "starts.txt").read_text().splitlines()
    return json.loads((folder / "plain.json").read_text()), starts


def assert_same_result(ask, folder, answers, expected, starts):
    """After all kills, run to the end."""
    assert "failed" not in answers
    assert ask("end").startswith("done")
    result, all_starts = outcome_of(folder)
    assert result == expected
    assert [start for start in all_starts if start.startswith("AGAIN")] == []
    lines = [line for line in read_lines(folder / "journal.jsonl") if not isinstance(line, StartRecord)]
    named = [getattr(line, "trial", None) or line.key for line in lines]
    assert len(named) == len(set(named))
    lost = 3 * answers.count("killed")  # those alive when it was killed: two, and an incumbent that is started again
    assert len(all_starts) <= len(starts) + lost


def test_thirty_kills_at_random_moments(tunes, undisturbed, tmp_path):
    expected, starts, seconds = undisturbed("various")
    ask, dice = tunes("various"), random.Random(1)
    answers = []
    while len(answers) < KILLS:
        answers.append(ask(f"time {dice.uniform(0.0, seconds / 5):.4f}"))
        Journal(tmp_path / "tune" / "journal.jsonl")  # it can be read at any time
    assert_same_result(ask, tmp_path / "tune", answers, expected, starts)


@pytest.mark.parametrize("script", ["various", "crowded", "short"])
def test_thirty_kills_at_random_lines_of_what_writes_and_decides(tunes, undisturbed, tmp_path, script):
    expected, starts, _ = undisturbed(script)
    ask, dice = tunes(script), random.Random(script)
    lines, appends = json.loads(ask("count"))
    assert appends > 10
    answers = []
    for number in range(KILLS):
        if number % 3 == 2:
            answers.append(ask(f"torn {dice.randint(1, 4)} {dice.randint(1, 400)}"))
        else:
            answers.append(ask(f"point {dice.randint(1, lines // 8)}"))
        Journal(tmp_path / "tune" / "journal.jsonl")
    assert answers.count("killed") >= KILLS / 3
    assert_same_result(ask, tmp_path / "tune", answers, expected, starts)
