"""What becomes of trials when their tuner is killed, and of those of another tuner in the same folder."""

import os
import signal
import subprocess
import time

import psutil
import pytest

from fulltilt.records.journal import Block
from fulltilt.records.request import REQUEST_VARIABLE, SCRATCH_VARIABLE
from fulltilt.trials.watchdog import kill_left_over

PROGRAM = """
import sys, time
from pathlib import Path
from fulltilt.trials.subprocess_executor import SubprocessExecutor
from fulltilt.trials.contract import TrialPlan
from fulltilt.records.words import Role
executor = SubprocessExecutor([sys.executable, sys.argv[1], '100000'], directory=Path(sys.argv[2]), cwd=Path('.'))
trial = executor.start(TrialPlan(trial='old', role=Role.BASELINE))
trial.wait_ready(executor.now() + 120)
print(executor._watchdog._process.pid, flush=True)
time.sleep(600)
"""


def members_of(directory):
    found = []
    for process in psutil.process_iter():
        try:
            if str(directory) in process.environ().get(REQUEST_VARIABLE, "") and process.status() != "zombie":
                found.append(process)
        except psutil.Error:
            continue
    return found


@pytest.fixture
def old_tuner(python, scripts, tmp_path):
    """A tuner in a process of its own, with one paused trial in tmp_path/trials: the process, and its watchdog's id."""
    process = subprocess.Popen(
        [python, "-c", PROGRAM, str(scripts / "plain.py"), str(tmp_path / "trials")],
        stdout=subprocess.PIPE,
        cwd=tmp_path,
    )
    yield process, int(process.stdout.readline())
    process.kill()
    process.communicate()


def wait_until(condition, seconds=60.0):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.05)


def test_the_watchdog_of_a_killed_tuner_leaves_those_alone_that_resume_in_its_folder(
    old_tuner, start_trial, python, scripts, tmp_path
):
    process, watchdog = old_tuner
    old = {member.pid for member in members_of(tmp_path)}
    executor, trial = start_trial([python, str(scripts / "plain.py"), "100000"], name="new")
    trial.wait_ready(executor.now() + 120)
    process.kill()
    process.wait()
    wait_until(lambda: not psutil.pid_exists(watchdog) or psutil.Process(watchdog).status() == "zombie")
    left = {member.pid for member in members_of(tmp_path)}
    assert left
    assert not left & old
    assert isinstance(trial.run_block(3, executor.now() + 60), Block)


def test_what_a_tuner_left_that_was_killed_with_its_watchdog_is_ended_by_the_next(old_tuner, tmp_path):
    process, watchdog = old_tuner
    (scratch,) = {os.path.dirname(member.environ()[SCRATCH_VARIABLE]) for member in members_of(tmp_path)}
    os.kill(watchdog, signal.SIGKILL)
    process.kill()
    process.wait()
    try:
        time.sleep(0.5)
        assert members_of(tmp_path) != []
        assert kill_left_over(tmp_path / "elsewhere") == 0
        assert kill_left_over(tmp_path / "trials") == 1
        wait_until(lambda: members_of(tmp_path) == [])
    finally:
        subprocess.run(["rm", "-rf", scratch], check=True)
