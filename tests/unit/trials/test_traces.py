import os
import subprocess
import sys

import psutil
import pytest

from fulltilt.records.traces import TRACES_FOLDER
from fulltilt.trials.traces import ask_where, describe_stack, read_crashes, read_failures, user_frame

STACK = """Stack (most recent call first):
  File "/usr/lib/python3.11/selectors.py", line 415 in select
  File "/env/lib/python3.11/site-packages/torch/utils/data/dataloader.py", line 725 in __next__
  File "/home/me/train.py", line 12 in loop
  File "/home/me/train.py", line 20 in <module>
"""


def test_a_stack_is_told_by_its_innermost_frame_and_the_users_line_that_led_there():
    assert describe_stack(STACK) == "/usr/lib/python3.11/selectors.py:415 in select, from /home/me/train.py:12 in loop"
    assert user_frame(STACK) == "/home/me/train.py:12 in loop"
    assert describe_stack("") == ""


def test_a_frame_of_the_users_own_is_told_once():
    own = 'Stack (most recent call first):\n  File "/home/me/train.py", line 3 in read\n'
    assert describe_stack(own) == "/home/me/train.py:3 in read"


@pytest.mark.parametrize(
    ("report", "where"),
    [
        (
            "Fatal Python error: Segmentation fault\n\nThread 0x1 (most recent call first):\n"
            '  File "/w/a.py", line 1 in other\n\nCurrent thread 0x2 (most recent call first):\n'
            '  File "/w/a.py", line 2 in mine\n\n'
            "Extension modules: numpy\n",
            "/w/a.py:2 in mine",
        ),
        (
            "Fatal Python error: Segmentation fault\n\nThread 0x1 (most recent call first):\n"
            '  File "/w/a.py", line 1 in other\n\nThread 0x2 (most recent call first):\n'
            '  File "/w/a.py", line 2 in main\n',
            "/w/a.py:2 in main",
        ),
        ("Fatal Python error: Segmentation fault\n\n<no Python frame>\n", ""),
    ],
)
def test_the_thread_that_crashed_is_told(tmp_path, report, where):
    (tmp_path / TRACES_FOLDER).mkdir()
    (tmp_path / TRACES_FOLDER / "12.txt").write_text(STACK + report)
    (crash,) = read_crashes(tmp_path)
    assert (crash.what, crash.where) == ("Segmentation fault", where)


def test_nothing_left_is_nothing_found(tmp_path):
    assert (read_failures(tmp_path), read_crashes(tmp_path)) == ((), ())


def test_half_a_record_of_a_failure_is_left_out(tmp_path):
    (tmp_path / TRACES_FOLDER).mkdir()
    (tmp_path / TRACES_FOLDER / "failure-12.json").write_text('{"pid": 12, "ra')
    assert read_failures(tmp_path) == ()


def test_a_process_that_does_not_listen_is_not_harmed_by_the_question(tmp_path):
    (tmp_path / TRACES_FOLDER).mkdir()
    process = subprocess.Popen([sys.executable, "-S", "-c", "input()"], stdin=subprocess.PIPE)
    try:
        assert ask_where([psutil.Process(process.pid), psutil.Process(os.getpid())], tmp_path) == ""
        assert process.poll() is None
    finally:
        process.communicate(b"\n")
    assert process.returncode == 0
