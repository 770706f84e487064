import os
import signal
import subprocess
import tempfile
import time

import psutil
import pytest

from belongings import looks
from fulltilt.records.journal import Block
from fulltilt.records.request import REQUEST_VARIABLE
from fulltilt.records.words import Outcome, Protection
from fulltilt.trials.contract import Ended, Ready
from fulltilt.trials.sandbox.protection import PROTECTION_VARIABLE


def patience(executor, seconds=60.0):
    return executor.now() + seconds


def members_of(directory):
    """Processes whose request lies under `directory`."""
    found = []
    for process in psutil.process_iter():
        try:
            if str(directory) in process.environ().get(REQUEST_VARIABLE, ""):
                found.append(process.pid)
        except psutil.Error:
            continue
    return found


def test_a_trial_becomes_ready_runs_blocks_and_closes(start_trial, python, scripts, tmp_path):
    executor, trial = start_trial([python, str(scripts / "plain.py"), "100000"], profile_steps=2)
    ready = trial.wait_ready(patience(executor))
    assert isinstance(ready, Ready)
    assert ready.num_steps == 5
    block = trial.run_block(7, patience(executor))
    assert isinstance(block, Block)
    assert (block.num_steps, len(block.step_seconds)) == (7, 7)
    assert block.seconds == pytest.approx(sum(block.step_seconds), rel=0.01)
    record = trial.close()
    assert (record.outcome, record.num_steps) == (Outcome.FINISHED, 12)
    assert trial.record.num_steps == 12
    assert members_of(tmp_path) == []


def test_a_paused_trial_makes_no_steps(start_trial, python, scripts):
    executor, trial = start_trial([python, str(scripts / "plain.py"), "100000"])
    trial.wait_ready(patience(executor))
    root = psutil.Process(trial._process.pid)
    deadline = time.monotonic() + 30
    while root.status() != psutil.STATUS_STOPPED and time.monotonic() < deadline:
        time.sleep(0.01)  # on a loaded machine a signal takes its time
    assert root.status() == psutil.STATUS_STOPPED
    before = root.cpu_times().user
    time.sleep(0.3)
    assert root.cpu_times().user == before


def test_a_script_that_ends_early_leaves_its_record(start_trial, python, scripts):
    executor, trial = start_trial([python, str(scripts / "plain.py"), "2"])
    ended = trial.wait_ready(patience(executor))
    assert isinstance(ended, Ended)
    assert (ended.outcome, ended.exit_status, ended.num_steps) == (Outcome.ENDED, 0, 2)
    assert trial.record.evidence.num_steps == 2


def test_a_script_that_ends_in_a_block_tells_how_many_steps_it_had(start_trial, python, scripts):
    executor, trial = start_trial([python, str(scripts / "plain.py"), "10"])
    trial.wait_ready(patience(executor))
    assert isinstance(trial.run_block(4, patience(executor)), Block)
    ended = trial.run_block(50, patience(executor))
    assert isinstance(ended, Ended)
    assert (ended.outcome, ended.num_steps) == (Outcome.ENDED, 10)


@pytest.mark.parametrize(
    ("source", "outcome", "words"),
    [
        ("raise ValueError('no such data')", Outcome.EXCEPTION, "ValueError: no such data"),
        ("import torch; raise ValueError('bad batch')", Outcome.EXCEPTION, "ValueError: bad batch"),
        ("import sys; sys.exit('sorry')", Outcome.EXCEPTION, "sorry"),
        ("import torch", Outcome.NO_TRAINING, ""),
        ("import os; os.kill(os.getpid(), 11)", Outcome.SIGNAL, "SIGSEGV"),
        (
            "import sys; sys.stdout.buffer.write(bytes(range(256)) * 40); sys.exit(2)",
            Outcome.EXCEPTION,
            "exit status 2",
        ),
        ("import torch; torch.empty(1 << 50)", Outcome.OUT_OF_MEMORY, "allocate memory"),
        ("import torch; torch.nn.Linear(2, 2)(torch.ones(1, 2)).sum().backward(); 1 / 0", Outcome.EXCEPTION, "ZeroDiv"),
    ],
)
def test_each_bad_end_is_classified(start_trial, python, tmp_path, source, outcome, words):
    (tmp_path / "script.py").write_text(source + "\n")
    executor, trial = start_trial([python, "script.py"])
    ended = trial.wait_ready(patience(executor))
    assert isinstance(ended, Ended)
    assert ended.outcome is outcome
    assert words in ended.message


def test_a_hanging_script_is_ended_with_its_children(start_trial, python, tmp_path):
    source = (
        "import subprocess, sys, torch\n"
        "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'], start_new_session=True)\n"
        "import time; time.sleep(600)\n"
    )
    (tmp_path / "script.py").write_text(source)
    executor, trial = start_trial([python, "script.py"], hang_seconds=4.0)
    ended = trial.wait_ready(patience(executor))
    assert ended.outcome is Outcome.HANG
    assert "no training step within" in ended.message
    trial.close()
    assert members_of(tmp_path) == []


def test_a_command_that_is_not_there_is_not_started(start_trial):
    executor, trial = start_trial(["no-such-command-anywhere"])
    ended = trial.wait_ready(patience(executor))
    assert (ended.outcome, ended.exit_status) == (Outcome.NOT_STARTED, 127)


def test_the_first_training_child_of_a_launcher_is_the_one_measured(start_trial, python, scripts, tmp_path):
    launcher = tmp_path / "launch.sh"
    launcher.write_text(f'#!/bin/sh\nfor i in 1 2; do "{python}" "{scripts}/plain.py" 4; done\nsleep 300\n')
    launcher.chmod(0o755)
    executor, trial = start_trial([str(launcher)], evidence_steps=10)
    ended = trial.wait_ready(patience(executor))
    assert (ended.outcome, ended.num_steps) == (Outcome.ENDED, 4)
    trial.close()
    assert members_of(tmp_path) == []


@pytest.fixture(params=["", "user-namespace", "redirect"], ids=lambda means: means or "strongest")
def means(request, monkeypatch):
    """Each means of protecting files; what cannot be had here falls back on the last."""
    monkeypatch.setenv(PROTECTION_VARIABLE, request.param)
    return request.param


@pytest.mark.usefixtures("means")
def test_a_trial_overwrites_no_file_of_the_users(start_trial, python, tmp_path):
    (tmp_path / "checkpoint.pt").write_bytes(b"precious")
    (tmp_path / "log.txt").write_text("old\n")
    (tmp_path / "gone.txt").write_text("keep me\n")
    (tmp_path / "script.py").write_text(
        "import os, torch\n"
        "model = torch.nn.Linear(2, 1); optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
        "def train():\n"
        "    model(torch.ones(1, 2)).sum().backward(); optimizer.step()\n"
        "train()\n"
        "torch.save(model.state_dict(), 'checkpoint.pt')\n"
        "assert set(torch.load('checkpoint.pt')) == {'weight', 'bias'}\n"
        "open('log.txt', 'a').write('new\\n')\n"
        "assert open('log.txt').read() == 'old\\nnew\\n'\n"
        "open('fresh.txt', 'w').write('x')\n"
        "assert os.path.exists('fresh.txt') and os.path.getsize('fresh.txt') == 1\n"
        "os.rename('fresh.txt', 'moved.txt')\n"
        "assert open('moved.txt').read() == 'x' and not os.path.exists('fresh.txt')\n"
        "os.remove('gone.txt')\n"
        "assert not os.path.exists('gone.txt')\n"
    )
    before = sorted(os.listdir(tmp_path))
    executor, trial = start_trial([python, "script.py"])
    ended = trial.wait_ready(patience(executor))
    assert (ended.outcome, ended.message) == (Outcome.ENDED, "")
    trial.close()
    assert (tmp_path / "checkpoint.pt").read_bytes() == b"precious"
    assert (tmp_path / "log.txt").read_text() == "old\n"
    assert (tmp_path / "gone.txt").read_text() == "keep me\n"
    assert sorted(set(os.listdir(tmp_path)) - {"trials"}) == before


@pytest.mark.usefixtures("means")
def test_files_and_folders_behave_for_the_script_and_stay_for_the_user(start_trial, python, tmp_path):
    (tmp_path / "runs" / "old").mkdir(parents=True)
    (tmp_path / "runs" / "old" / "model.pt").write_text("precious")
    for name in ("log.txt", "path.txt", "best.pt"):
        (tmp_path / name).write_text("mine")
    (tmp_path / "script.py").write_text(
        "open('log.txt', 'a').close(); early = open('before_torch.txt', 'w'); early.write('x'); early.close()\n"
        "import logging, os, shutil, pathlib, torch\n"
        "os.rename('path.txt', 'path.old'); assert pathlib.Path('path.old').read_text() == 'mine'\n"
        "pathlib.Path('best.pt').replace('best.old'); assert not os.path.exists('best.pt')\n"
        "os.rename('runs', 'gone'); assert os.path.exists('gone/old/model.pt') and not os.path.exists('runs')\n"
        "os.rename('gone', 'runs')\n"
        "shutil.rmtree('runs/old'); assert not os.path.exists('runs/old'); os.makedirs('runs/old')\n"
        "assert os.listdir('runs/old') == [] and [entry.name for entry in os.scandir('runs')] == ['old']\n"
        "os.makedirs('new/deep'); pathlib.Path('new/deep/a.txt').touch(); assert os.listdir('new/deep') == ['a.txt']\n"
        "shutil.copy('new/deep/a.txt', 'log.txt'); os.chmod('log.txt', 0o600); os.utime('log.txt')\n"
        "assert sorted(p.name for p in pathlib.Path('.').glob('*.old')) == ['best.old', 'path.old']\n"
        "os.remove('new/deep/a.txt'); os.rmdir('new/deep'); assert os.listdir('new') == []\n"
        "try:\n    os.mkdir('runs')\nexcept FileExistsError:\n    pass\nelse:\n    raise AssertionError('made twice')\n"
        "torch.jit.save(torch.jit.script(torch.nn.Linear(2, 1)), 'best.pt'); torch.jit.load('best.pt')\n"
        "torch.nn.Linear(2, 1)(torch.ones(1, 2)).sum().backward()\n"
    )
    before = {path: path.read_text() for path in tmp_path.rglob("*") if path.is_file()}
    executor, trial = start_trial([python, "-W", "ignore", "script.py"])
    ended = trial.wait_ready(patience(executor))
    assert (ended.outcome, ended.message) == (Outcome.ENDED, "")
    trial.close()
    after = {path: path.read_text() for path in tmp_path.rglob("*") if path.is_file() and "trials" not in path.parts}
    assert after == before
    assert not (tmp_path / "new").exists()


@pytest.mark.usefixtures("means")
def test_a_checkpoint_written_by_native_code_is_redirected_too(start_trial, python, tmp_path):
    (tmp_path / "model.safetensors").write_bytes(b"precious")
    (tmp_path / "script.py").write_text(
        "import importlib.util, torch; assert importlib.util.find_spec('safetensors')\n"
        "from safetensors import safe_open\nfrom safetensors.torch import load_file, save_file\n"
        "save_file({'w': torch.ones(3)}, 'model.safetensors')\n"
        "assert load_file('model.safetensors')['w'].sum() == 3\n"
        "with safe_open('model.safetensors', framework='pt') as file:\n    assert list(file.keys()) == ['w']\n"
        "torch.nn.Linear(2, 1)(torch.ones(1, 2)).sum().backward()\n"
    )
    executor, trial = start_trial([python, "script.py"])
    ended = trial.wait_ready(patience(executor))
    assert (ended.outcome, ended.message) == (Outcome.ENDED, "")
    trial.close()
    assert (tmp_path / "model.safetensors").read_bytes() == b"precious"


@pytest.mark.usefixtures("means")
def test_links_are_made_for_the_script_only(start_trial, python, tmp_path):
    (tmp_path / "old.pt").write_text("mine")
    (tmp_path / "latest.pt").symlink_to("old.pt")
    (tmp_path / "script.py").write_text(
        "import os, torch\n"
        "open('new.pt', 'w').write('new'); os.remove('latest.pt'); os.symlink('new.pt', 'latest.pt')\n"
        "assert os.path.islink('latest.pt') and open('latest.pt').read() == 'new'\n"
        "os.symlink('old.pt', 'before.pt'); assert open('before.pt').read() == 'mine'\n"
        "os.link('old.pt', 'copy.pt'); open('copy.pt', 'a').write('!'); assert open('copy.pt').read() == 'mine!'\n"
        "for make in (os.symlink, os.link):\n"
        "    try:\n        make('new.pt', 'old.pt')\n"
        "    except FileExistsError:\n        pass\n"
        "    else:\n        raise AssertionError('made over a file')\n"
        "torch.nn.Linear(2, 1)(torch.ones(1, 2)).sum().backward()\n"
    )
    before = looks(tmp_path)
    executor, trial = start_trial([python, "script.py"])
    ended = trial.wait_ready(patience(executor))
    assert (ended.outcome, ended.message) == (Outcome.ENDED, "")
    trial.close()
    after = looks(tmp_path, apart_from=tmp_path / "trials")
    assert after | {str(tmp_path): before[str(tmp_path)]} == before  # the folder itself has got one more
    assert sorted(os.listdir(tmp_path)) == ["latest.pt", "old.pt", "script.py", "trials"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_a_folder_that_can_have_no_overlay_is_redirected_beside_one(start_trial, python, tmp_path, monkeypatch):
    monkeypatch.setenv(PROTECTION_VARIABLE, "user-namespace")
    team = tmp_path / "team"
    team.mkdir()
    (team / "model.pt").write_text("precious")
    for path in (team, team / "model.pt"):
        os.chown(path, 0, 4343)
    (tmp_path / "script.py").write_text(
        "import os, torch\n"
        "torch.save({'a': 1}, 'team/model.pt'); assert torch.load('team/model.pt') == {'a': 1}\n"
        "open('team/new', 'w').write('x'); assert sorted(os.listdir('team')) == ['model.pt', 'new']\n"
        "os.system('echo y > by_shell'); assert os.path.exists('by_shell')\n"
        "torch.nn.Linear(2, 1)(torch.ones(1, 2)).sum().backward()\n"
    )
    executor, trial = start_trial([python, "script.py"])
    if executor.protection.means is not Protection.OVERLAY:
        pytest.skip(f"no overlay here: {executor.protection.reason}")
    ended = trial.wait_ready(patience(executor))
    assert (ended.outcome, ended.message) == (Outcome.ENDED, "")
    trial.close()
    assert (team / "model.pt").read_text() == "precious"
    assert os.listdir(team) == ["model.pt"]
    assert not (tmp_path / "by_shell").exists()
    assert str(team) in executor.protection.redirected


def test_a_trial_is_told_apart_by_its_environment(start_trial, python, tmp_path):
    (tmp_path / "script.py").write_text(
        "import os, torch\n"
        "assert os.environ['FULLTILT_TRIAL'] == '1' and os.environ['WANDB_MODE'] == 'offline'\n"
        "torch.nn.Linear(2, 1)(torch.ones(1, 2)).sum().backward()\n"
    )
    executor, trial = start_trial([python, "script.py"])
    assert trial.wait_ready(patience(executor)).outcome is Outcome.ENDED


@pytest.mark.parametrize("signal_number", [signal.SIGKILL, signal.SIGTERM])
def test_no_orphan_is_left_when_the_parent_is_killed(python, scripts, tmp_path, signal_number):
    program = (
        "import sys, time\nfrom pathlib import Path\n"
        "from fulltilt.trials.subprocess_executor import SubprocessExecutor\n"
        "from fulltilt.trials.contract import TrialPlan\n"
        "from fulltilt.records.words import Role\n"
        f"executor = SubprocessExecutor([sys.executable, {str(scripts / 'plain.py')!r}, '100000'],"
        f" directory=Path({str(tmp_path)!r}) / 'trials', cwd=Path({str(tmp_path)!r}))\n"
        "trial = executor.start(TrialPlan(trial='t', role=Role.BASELINE))\n"
        "trial.wait_ready(executor.now() + 60)\nprint('paused', flush=True)\ntime.sleep(300)\n"
    )
    temporary = tempfile.mkdtemp(prefix="tmp-")  # short: a socket's path has 107 bytes
    environment = {**os.environ, "TMPDIR": temporary}
    parent = subprocess.Popen([python, "-c", program], stdout=subprocess.PIPE, env=environment)
    assert parent.stdout.readline() == b"paused\n"
    assert members_of(tmp_path) != []
    assert os.listdir(temporary) != []
    parent.send_signal(signal_number)
    parent.wait(timeout=30)
    parent.stdout.close()
    deadline = time.monotonic() + 30
    while (members_of(tmp_path) or os.listdir(temporary)) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert members_of(tmp_path) == []
    assert os.listdir(temporary) == []  # what the trial wrote is gone as well
    os.rmdir(temporary)


@pytest.mark.parametrize("means", ["", "redirect"], ids=lambda means: means or "strongest")
def test_an_interruption_while_a_trial_starts_leaves_nothing(python, tmp_path, means):
    """Ctrl-C at any moment of a start: the process is there, and nobody has heard of it yet."""
    program = (
        "import signal, time\nfrom pathlib import Path\n"
        "from fulltilt.trials.subprocess_executor import SubprocessExecutor\n"
        "from fulltilt.trials.contract import TrialPlan\n"
        "from fulltilt.records.words import Role\n"
        "signal.signal(signal.SIGALRM, signal.default_int_handler)\n"
        f"delay = {0.0001 if means else 0.002}\n"
        "for n in range(24):\n"
        f"    executor = SubprocessExecutor(['sleep', '600'], directory=Path({str(tmp_path)!r}), cwd=Path('.'))\n"
        "    try:\n"
        "        signal.setitimer(signal.ITIMER_REAL, delay * (n + 1))\n"
        "        executor.start(TrialPlan(trial='t', role=Role.BASELINE))\n"
        "    except KeyboardInterrupt:\n"
        "        print('interrupted')\n"
        "        time.sleep(0.3)  # meanwhile others are ended, and it goes on\n"
        "    finally:\n"
        "        signal.setitimer(signal.ITIMER_REAL, 0)\n"
        "        executor.close()\n"
    )
    environment = {**os.environ, PROTECTION_VARIABLE: means}
    done = subprocess.run(
        [python, "-c", program], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert "interrupted" in done.stdout, done.stderr
    assert members_of(tmp_path) == []
