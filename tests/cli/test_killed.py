"""Real tunes: killed and taken up again, and two at once."""

import json
import os
import random
import subprocess
import sys
import time

import psutil
import pytest

from fulltilt.records.request import REQUEST_VARIABLE
from fulltilt.trials.journal import Journal


def members_of(directory):
    found = []
    for process in psutil.process_iter():
        try:
            if str(directory) in process.environ().get(REQUEST_VARIABLE, "") and process.status() != "zombie":
                found.append(process.pid)
        except psutil.Error:
            continue
    return found


def start_tune(tmp_path, scripts, *, out="out", steps="1000000", budget="60s"):
    (tmp_path / "tmp").mkdir(exist_ok=True)
    return subprocess.Popen(
        [
            *(sys.executable, "-m", "fulltilt", "tune", "--quiet", "--only", "gc_freeze", "--budget", budget),
            *("--out", out, "--", sys.executable, str(scripts / "plain.py"), steps, "0.01"),
        ],
        cwd=tmp_path,
        env={**os.environ, "TMPDIR": str(tmp_path / "tmp"), "OMP_NUM_THREADS": "1"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_real_tune_that_is_killed_again_and_again(tmp_path, scripts):
    dice = random.Random(5)
    for number in range(6):
        tune = start_tune(tmp_path, scripts)
        time.sleep(dice.uniform(0.5, 8.0))
        tune.kill()
        tune.communicate()
        Journal(tmp_path / "out" / "journal.jsonl")
        if number % 2:  # the next one may also come while the watchdog is still at work
            wait_until(lambda: members_of(tmp_path) == [])
    tune = start_tune(tmp_path, scripts)
    _, said = tune.communicate(timeout=400)
    assert tune.returncode == 0, said
    names = [record.trial for record in Journal(tmp_path / "out" / "journal.jsonl").trials]
    assert len(names) == len(set(names))
    result = json.loads((tmp_path / "out" / "result.json").read_text())
    assert [technique["name"] for technique in result["techniques"]] == ["gc_freeze"]
    wait_until(lambda: members_of(tmp_path) == [])
    wait_until(lambda: os.listdir(tmp_path / "tmp") == [])


def test_two_tunes_at_once_in_folders_of_their_own(tmp_path, scripts):
    tunes = [start_tune(tmp_path, scripts, out=out, steps="3") for out in ("one", "other")]
    for tune in tunes:
        _, said = tune.communicate(timeout=240)
        assert tune.returncode == 0, said
    for out in ("one", "other"):
        assert "only 3 training steps" in json.loads((tmp_path / out / "result.json").read_text())["summary"]
    assert members_of(tmp_path) == []
    assert os.listdir(tmp_path / "tmp") == []


def wait_until(condition, seconds=60.0):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.05)
