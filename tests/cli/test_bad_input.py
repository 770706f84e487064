"""What people get wrong, and what goes wrong: one clear message, the right exit status, no orphan, nothing lost."""

import json
import os
import signal
import subprocess
import sys
import time

import psutil
import pytest

from fulltilt.records.request import REQUEST_VARIABLE
from fulltilt.trials.journal import Journal


def fulltilt(*arguments, cwd=None, **options):
    return subprocess.run(
        [sys.executable, "-m", "fulltilt", *arguments],
        capture_output=True,
        text=True,
        errors="replace",
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        check=False,
        **options,
    )


def tune(tmp_path, *command, budget="60s", more=()):
    return fulltilt(
        "tune", "--quiet", "--budget", budget, "--out", str(tmp_path / "out"), *more, "--", *command, cwd=tmp_path
    )


IN_THE_FOREGROUND = (
    "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); from fulltilt.cli import main; main()"
)
"""Ctrl-C is ignored in what a shell starts in the background, these tests perhaps."""


def orphans(tmp_path):
    found = []
    for process in psutil.process_iter():
        try:
            if str(tmp_path) in process.environ().get(REQUEST_VARIABLE, ""):
                found.append(process.pid)
        except psutil.Error:
            continue
    return found


def assert_one_clear_message(done, status, *words):
    assert done.returncode == status, done.stderr
    assert "Traceback" not in done.stderr
    assert done.stderr.startswith("fulltilt: ")
    for word in words:
        assert word in done.stderr


def test_no_such_file(tmp_path):
    assert_one_clear_message(tune(tmp_path, sys.executable, "nowhere.py"), 2, "nowhere.py: no such file")


def test_no_such_command(tmp_path):
    assert_one_clear_message(tune(tmp_path, "no-such-command"), 2, "no such command")


def test_no_command_at_all(tmp_path):
    done = fulltilt("tune")
    assert done.returncode == 2
    assert "Traceback" not in done.stderr


def test_a_budget_that_is_none(tmp_path):
    done = tune(tmp_path, sys.executable, "-c", "pass", budget="soon")
    assert_one_clear_message(done, 2, "--budget", "write it like 90s, 10m")


def test_an_unknown_technique_is_answered_with_the_known(tmp_path):
    done = tune(tmp_path, sys.executable, "-c", "pass", more=("--only", "warp"))
    assert_one_clear_message(done, 2, "'warp'", "fused_optimizer")


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("raise ValueError('no data')", ("fails by itself", "ValueError: no data")),
        ("import torch\nraise KeyError('lost')", ("fails by itself", "KeyError", "script.py:2")),
        ("print('hello')", ("without a training step",)),
        ("import os, torch; os.kill(os.getpid(), 11)", ("killed by signal SIGSEGV",)),
        ("import sys; sys.stdout.buffer.write(bytes(range(256))); sys.exit(4)", ("exit status 4",)),
    ],
)
def test_a_command_that_fails_without_us_is_status_3(tmp_path, source, words):
    (tmp_path / "script.py").write_text(source + "\n")
    assert_one_clear_message(tune(tmp_path, sys.executable, "script.py"), 3, *words)
    assert orphans(tmp_path) == []


def test_a_command_that_hangs_is_ended(tmp_path):
    (tmp_path / "script.py").write_text("import torch, time\ntime.sleep(600)\n")
    done = tune(tmp_path, sys.executable, "script.py", more=("--hang-timeout", "5s"))
    assert_one_clear_message(done, 3, "no training step within")
    assert orphans(tmp_path) == []


def test_three_steps_are_said_to_be_too_few(tmp_path, scripts):
    done = tune(tmp_path, sys.executable, str(scripts / "plain.py"), "3")
    assert done.returncode == 0
    assert "only 3" in done.stdout
    assert json.loads((tmp_path / "out" / "result.json").read_text())["recipe"]["techniques"] == []


def test_training_in_a_child_process_is_found(tmp_path, scripts):
    (tmp_path / "launch.py").write_text(
        f"import subprocess, sys\nsys.exit(subprocess.call([sys.executable, {str(scripts / 'plain.py')!r}, '3']))\n"
    )
    done = tune(tmp_path, sys.executable, "launch.py")
    assert done.returncode == 0
    assert "only 3" in done.stdout


def test_two_tunes_in_one_folder(tmp_path, scripts):
    command = [sys.executable, str(scripts / "plain.py"), "1000000", "0.01"]
    first = subprocess.Popen(
        [sys.executable, "-c", IN_THE_FOREGROUND, "tune", "--quiet", "--budget", "10m", "--out", "out", "--", *command],
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    try:
        wait_for(lambda: (tmp_path / "out" / "journal.jsonl").exists())
        assert_one_clear_message(tune(tmp_path, *command), 2, "another fulltilt is working in")
    finally:
        first.send_signal(signal.SIGINT)
        first.communicate(timeout=60)
    assert orphans(tmp_path) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interruption_leaves_a_report_and_a_journal_to_go_on_with(tmp_path, scripts, number):
    command = [sys.executable, str(scripts / "plain.py"), "1000000", "0.01"]
    started = subprocess.Popen(
        [sys.executable, "-c", IN_THE_FOREGROUND, "tune", "--quiet", "--budget", "10m", "--out", "out", "--", *command],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    journal = tmp_path / "out" / "journal.jsonl"
    try:
        wait_for(lambda: journal.exists() and '"trial":"repeat"' in journal.read_text())
    finally:
        started.send_signal(number)
        _, said = started.communicate(timeout=120)
    assert started.returncode == 130
    assert "interrupted; what is known stands in out" in said
    assert {"recipe.yaml", "result.json", "report.html", "report.md"} <= set(os.listdir(tmp_path / "out"))
    assert json.loads((tmp_path / "out" / "result.json").read_text())["finished"] is False
    assert orphans(tmp_path) == []


def test_kill_9_leaves_no_orphan_and_the_journal_resumes(tmp_path, scripts):
    command = [sys.executable, str(scripts / "plain.py"), "1000000", "0.01"]
    arguments = ["tune", "--quiet", "--only", "gc_freeze", "--budget", "40s", "--out", "out", "--", *command]
    started = subprocess.Popen([sys.executable, "-m", "fulltilt", *arguments], cwd=tmp_path, stderr=subprocess.DEVNULL)
    journal = tmp_path / "out" / "journal.jsonl"
    try:
        wait_for(lambda: journal.exists() and '"trial":"repeat"' in journal.read_text())
    finally:
        started.kill()
        started.wait()
    wait_for(lambda: orphans(tmp_path) == [])
    with journal.open("a") as file:
        file.write('{"kind":"trial","trial":"cut in the mid')
    done = fulltilt(*arguments, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    names = [record.trial for record in Journal(journal).trials]
    assert (names.count("baseline"), names.count("repeat")) == (1, 1)


def test_another_commands_folder_is_not_taken_over(tmp_path, scripts):
    tune(tmp_path, sys.executable, str(scripts / "plain.py"), "3")
    done = tune(tmp_path, sys.executable, str(scripts / "plain.py"), "4")
    assert_one_clear_message(done, 2, "holds the tune of another command")


def test_a_script_that_has_changed_is_not_answered_for(tmp_path, scripts):
    script = tmp_path / "script.py"
    script.write_text((scripts / "plain.py").read_text())
    tune(tmp_path, sys.executable, "script.py", "3")
    script.write_text(script.read_text() + "# edited\n")
    assert_one_clear_message(tune(tmp_path, sys.executable, "script.py", "3"), 2, "has changed since")


def test_a_journal_broken_in_the_middle(tmp_path, scripts):
    tune(tmp_path, sys.executable, str(scripts / "plain.py"), "3")
    journal = tmp_path / "out" / "journal.jsonl"
    journal.write_text("{broken\n" + journal.read_text())
    done = tune(tmp_path, sys.executable, str(scripts / "plain.py"), "3")
    assert_one_clear_message(done, 2, "line 1 of", "Remove that line")


@pytest.mark.parametrize(
    ("largest_file", "words"),
    [(100, ("journal", "cannot be written", "--out")), (2000, ("cannot write its record", "TMPDIR"))],
)
def test_a_disk_on_which_nothing_more_can_be_written(tmp_path, scripts, largest_file, words):
    """A limit on the size of files gives the same kind of error as a full disk, in every process of the tune."""
    limit = f"import resource; resource.setrlimit(resource.RLIMIT_FSIZE, ({largest_file}, {largest_file}));"
    program = f"{limit} from fulltilt.cli import main; main()"
    command = ["tune", "--quiet", "--out", "out", "--", sys.executable, str(scripts / "plain.py"), "3"]
    done = subprocess.run(
        [sys.executable, "-c", program, *command], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert_one_clear_message(done, 1, *words)
    assert orphans(tmp_path) == []


def test_a_folder_that_cannot_be_made(tmp_path, scripts):
    (tmp_path / "out").write_text("a file is in the way")
    done = tune(tmp_path, sys.executable, str(scripts / "plain.py"), "3")
    assert_one_clear_message(done, 1, "cannot be written")


def test_a_folder_without_a_tune_has_no_report(tmp_path):
    assert_one_clear_message(fulltilt("report", str(tmp_path)), 2, "holds no result.json")


def test_a_result_from_the_future(tmp_path, scripts):
    tune(tmp_path, sys.executable, str(scripts / "plain.py"), "3")
    path = tmp_path / "out" / "result.json"
    result = json.loads(path.read_text())
    path.write_text(json.dumps({**result, "schema": 99}))
    assert_one_clear_message(fulltilt("report", str(tmp_path / "out")), 2, "schema 99")


def wait_for(condition, seconds=180.0):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.05)
