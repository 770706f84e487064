"""One injected failure of each class, in real processes: it is told as what it is, and nothing is left behind."""

import os
import shutil
import subprocess
import textwrap
import threading
import time
from pathlib import Path

import psutil
import pytest

from fulltilt.records.journal import Block
from fulltilt.records.request import REQUEST_VARIABLE
from fulltilt.records.words import Outcome
from fulltilt.trials.contract import Ended, Ready

PREAMBLE = """
import os, signal, sys, time
os.environ.setdefault("OMP_NUM_THREADS", "1")
import torch
torch.set_num_threads(1)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

def train(x=None):
    optimizer.zero_grad()
    loss = model(torch.ones(2, 4) if x is None else x).square().mean()
    loss.backward()
    optimizer.step()
    return loss
"""

LOADER = """
class Data(torch.utils.data.Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, index):
        if index == 31:
            fail()
        return torch.ones(4)

def loop():
    for x in torch.utils.data.DataLoader(Data(), batch_size=2, num_workers=1):
        train(x)
"""

IN_NAMESPACE = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c"]
"""A shell that may mount a file system for itself and its children."""


def can_mount():
    if shutil.which("unshare") is None:
        return False
    return subprocess.run([*IN_NAMESPACE, "mount -t tmpfs none /mnt"], capture_output=True, check=False).returncode == 0


needs_mount = pytest.mark.skipif(not can_mount(), reason="may not mount")


def members_of(directory):
    """Processes whose request lies under `directory`."""
    found = []
    for process in psutil.process_iter():
        try:
            if str(directory) in process.environ().get(REQUEST_VARIABLE, "") and process.status() != "zombie":
                found.append(process.pid)
        except psutil.Error:
            continue
    return found


@pytest.fixture
def run(start_trial, python, tmp_path):
    """run(source) -> how a trial of this script ended, evidence over 3 steps, up to 100 more; nothing may be left."""

    def run(source, *, argv=None, preamble=PREAMBLE, hang_seconds=180.0, hang_seconds_once_ready=60.0):
        (tmp_path / "script.py").write_text(preamble + textwrap.dedent(source))
        executor, trial = start_trial(argv or [python, "script.py"], hang_seconds=hang_seconds)
        deadline = executor.now() + 240.0
        ended = trial.wait_ready(deadline)
        trial._hang_seconds = hang_seconds_once_ready  # importing torch takes its time on a loaded machine
        while not isinstance(ended, Ended) and trial.num_steps < 100:
            assert isinstance(ended, Ready | Block)
            ended = trial.run_block(5, deadline)
        record = trial.close()
        assert members_of(tmp_path) == []
        if isinstance(ended, Ended):
            assert (record.outcome, record.message) == (ended.outcome, ended.message)
        return ended

    return run


def two_ranks(python):
    return [python, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "script.py"]


RANKS = """
import torch.distributed as dist
dist.init_process_group("gloo")
rank = dist.get_rank()
"""


# out of memory


@pytest.mark.parametrize(
    "failing",
    [
        "raise torch.OutOfMemoryError('CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has ...')",
        "raise RuntimeError('CUDA error: out of memory\\nCUDA kernel errors might be ...')",
        "raise RuntimeError('CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`')",
        "torch.empty(1 << 50)",
        "bytearray(1 << 60)",
        "import resource; resource.setrlimit(resource.RLIMIT_AS, (1 << 33, 1 << 33)); torch.zeros(1 << 33)",
    ],
)
def test_memory_that_ran_out_is_told_from_every_other_exception(run, failing):
    ended = run(f"train()\n{failing}\n")
    assert ended.outcome is Outcome.OUT_OF_MEMORY
    assert "script.py:" in ended.message


def test_memory_that_ran_out_in_a_loaders_worker(run):
    ended = run(LOADER + "def fail():\n    torch.empty(1 << 50)\nloop()\n")
    assert ended.outcome is Outcome.OUT_OF_MEMORY
    assert "in DataLoader worker process 0" in ended.message
    assert "in fail" in ended.message  # the line of the worker, not that of the loop


def test_memory_that_ran_out_in_another_rank(run, python):
    source = """
    for step in range(1000):
        if rank == 1 and step == 4:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
        train()
        dist.all_reduce(model.weight.data)
    """
    ended = run(RANKS + textwrap.dedent(source), argv=two_ranks(python))
    assert ended.outcome is Outcome.OUT_OF_MEMORY
    assert "(rank 1)" in ended.message


def test_memory_that_ran_out_in_a_spawned_process(run):
    source = """
    def work(index):
        train()
        bytearray(1 << 60)

    if __name__ == "__main__":
        torch.multiprocessing.spawn(work, nprocs=1)
    """
    ended = run(source)
    assert ended.outcome is Outcome.OUT_OF_MEMORY
    assert "MemoryError" in ended.message


def test_a_script_that_prints_out_of_memory_and_ends_well(run):
    assert run("train(); print('CUDA out of memory. Tried to allocate 2 GiB: batch skipped')").outcome is Outcome.ENDED


def test_a_script_that_survived_it_and_chose_another_status(run):
    ended = run("train(); print('RuntimeError: CUDA out of memory. Skipped', flush=True); sys.exit(3)")
    assert (ended.outcome, ended.exit_status) == (Outcome.ENDED, 3)


def test_a_view_that_does_not_fit_is_no_memory_error(run):
    ended = run("train(); torch.ones(4, 4).t().view(16)")
    assert ended.outcome is Outcome.EXCEPTION
    assert "view size is not compatible" in ended.message


@pytest.fixture
def small_group():
    """A control group for memory, of 600 MiB."""
    for root, limit in (("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")):
        group = Path(root) / f"fulltilt-test-{os.getpid()}"
        try:
            group.mkdir()
        except OSError:
            continue
        try:
            (group / limit).write_text(str(600 << 20))
            yield group
            return
        except OSError:
            continue
        finally:
            for _ in range(50):  # its processes may still be ending
                try:
                    group.rmdir()
                    break
                except OSError:
                    time.sleep(0.1)
    pytest.skip("no control group for memory can be made here")


def test_a_kill_by_the_kernel_for_memory(run, python, small_group):
    join = f"echo $$ > {small_group}/cgroup.procs && exec {python} script.py"
    ended = run("train()\nkept = b'x' * (2 << 30)\n", argv=["sh", "-c", join])
    assert ended.outcome is Outcome.OUT_OF_MEMORY
    assert "killed by signal SIGKILL; the host ran out of memory" in ended.message


@needs_mount
def test_shared_memory_that_is_too_small_for_a_loader(run, python):
    source = """
    class Data(torch.utils.data.Dataset):
        def __len__(self):
            return 64

        def __getitem__(self, index):
            return torch.ones(1 << 20)

    for x in torch.utils.data.DataLoader(Data(), batch_size=2, num_workers=1):
        train()
    """
    mount = f"mount -t tmpfs -o size=4m none /dev/shm && exec {python} script.py"
    ended = run(source, argv=[*IN_NAMESPACE, mount])
    assert ended.outcome is Outcome.OUT_OF_MEMORY
    assert "/dev/shm" in ended.message
    assert "--shm-size" in ended.message


# signals


@pytest.mark.parametrize("name", ["SIGSEGV", "SIGABRT", "SIGBUS", "SIGKILL", "SIGTERM"])
def test_a_script_that_dies_of_a_signal(run, name):
    ended = run(f"train()\ndef die():\n    os.kill(os.getpid(), signal.{name})\n    time.sleep(60)\ndie()\n")
    assert (ended.outcome, ended.num_steps) == (Outcome.SIGNAL, 1)
    assert name in ended.message
    assert ended.exit_status == 128 + getattr(__import__("signal"), name)
    if name in ("SIGSEGV", "SIGABRT", "SIGBUS"):
        assert "in die" in ended.message


@pytest.mark.parametrize("wrapper", ["{python} script.py; exit $?", "{python} script.py"])
def test_a_signal_is_told_through_a_shell(run, python, wrapper):
    ended = run("train(); os.kill(os.getpid(), 11)", argv=["sh", "-c", wrapper.format(python=python)])
    assert (ended.outcome, ended.exit_status) == (Outcome.SIGNAL, 139)
    assert "SIGSEGV" in ended.message


@pytest.mark.parametrize("name", ["SIGSEGV", "SIGKILL"])
def test_a_loaders_worker_that_dies(run, name):
    ended = run(LOADER + f"def fail():\n    os.kill(os.getpid(), signal.{name})\nloop()\n")
    assert ended.outcome is Outcome.SIGNAL
    words = "a loader's worker was killed"  # torch does not always come to see of what: the batch was half read
    assert (f"{words} by signal SIGSEGV" if name == "SIGSEGV" else words) in ended.message


@pytest.mark.parametrize("name", ["SIGSEGV", "SIGKILL"])
def test_one_rank_of_two_that_dies(run, python, name):
    source = f"""
    for step in range(1000):
        if rank == 1 and step == 4:
            os.kill(os.getpid(), signal.{name})
        train()
        dist.all_reduce(model.weight.data)
    """
    ended = run(RANKS + textwrap.dedent(source), argv=two_ranks(python))
    assert ended.outcome is Outcome.SIGNAL
    assert name in ended.message


def test_a_measured_process_that_is_killed_under_a_launcher_that_goes_on(run, python, monkeypatch):
    monkeypatch.setattr("fulltilt.trials.subprocess_executor._ABRUPT_GRACE_SECONDS", 1.0)
    ended = run("train(); train(); os.kill(os.getpid(), 9)", argv=["sh", "-c", f"{python} script.py; sleep 300; true"])
    assert (ended.outcome, ended.message.partition(",")[0]) == (Outcome.SIGNAL, "the training process was killed")


def test_a_script_that_ends_itself_without_a_word_has_ended(run):
    ended = run("train(); train(); os._exit(0)")
    assert ended.outcome is Outcome.ENDED


# hangs


def test_a_loader_that_hangs_is_ended_with_its_worker_and_the_line_is_named(run):
    ended = run(LOADER + "def fail():\n    time.sleep(600)\nloop()\n", hang_seconds_once_ready=4.0)
    assert ended.outcome is Outcome.HANG
    assert "no step for" in ended.message
    assert "in fail" in ended.message  # the worker
    assert "in loop" in ended.message  # who waits for it


def test_a_hang_in_a_collective_names_both_ranks(run, python):
    source = """
    def late():
        time.sleep(600)

    for step in range(1000):
        if rank == 1 and step == 5:
            late()
        train()
        dist.all_reduce(model.weight.data)
    """
    ended = run(RANKS + textwrap.dedent(source), argv=two_ranks(python), hang_seconds_once_ready=4.0)
    assert ended.outcome is Outcome.HANG
    assert "(rank 1) was in" in ended.message
    assert "in late" in ended.message
    assert "all_reduce" in ended.message


def test_a_hang_before_training_is_told_with_its_line(run):
    source = "import time\ndef load():\n    time.sleep(600)\nload()\nimport torch\n"
    ended = run(source, preamble="", hang_seconds=6.0)
    assert ended.outcome is Outcome.HANG
    assert "no training step within" in ended.message
    assert "in load" in ended.message


def test_a_process_that_ignores_every_polite_signal_is_ended_too(run):
    source = """
    for _ in range(4):
        train()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, signal.SIG_IGN)
    while True:
        time.sleep(60)
    """
    assert run(source, hang_seconds_once_ready=3.0).outcome is Outcome.HANG


def test_signals_and_stacks_of_the_script_stay_its_own(run):
    source = """
    import faulthandler
    got = []
    signal.signal(signal.SIGUSR1, lambda number, frame: got.append(number))
    os.kill(os.getpid(), signal.SIGUSR1)
    assert got == [signal.SIGUSR1]
    assert [signal.getsignal(n) for n in (signal.SIGUSR2, signal.SIGTERM)] == [signal.SIG_DFL] * 2
    faulthandler.enable()
    train()
    """
    ended = run(source)
    assert (ended.outcome, ended.message) == (Outcome.ENDED, "")


# numbers that are not finite


def test_weights_that_become_nan_after_the_evidence_are_seen_with_the_steps(start_trial, python, tmp_path):
    source = "for step in range(1, 1000):\n    train(torch.full((2, 4), float('nan')) if step == 12 else None)\n"
    (tmp_path / "script.py").write_text(PREAMBLE + source)
    executor, trial = start_trial([python, "script.py"])
    trial.wait_ready(executor.now() + 60)  # three steps
    seen = []
    for _ in range(4):
        trial.run_block(5, executor.now() + 60)
        seen.append(trial.not_finite_steps)
    assert seen == [None, (9, 13), (9, 13), (9, 13)]
    trial.close()
    assert trial.record.not_finite_steps == (9, 13)


# exceptions and ends


def test_an_exception_in_a_loaders_worker_is_told_with_its_own_line(run):
    ended = run(LOADER + "def fail():\n    raise KeyError('lost')\nloop()\n")
    assert ended.outcome is Outcome.EXCEPTION
    assert "KeyError: 'lost'" in ended.message
    assert "in fail" in ended.message


def test_an_exception_in_another_rank_is_the_cause_not_the_lost_peer(run, python):
    source = """
    for step in range(1000):
        if rank == 1 and step == 4:
            raise ValueError("odd batch")
        train()
        dist.all_reduce(model.weight.data)
    """
    ended = run(RANKS + textwrap.dedent(source), argv=two_ranks(python))
    assert ended.outcome is Outcome.EXCEPTION
    assert "ValueError: odd batch" in ended.message
    assert "(rank 1)" in ended.message


def test_a_helper_that_fails_does_not_fail_a_script_that_goes_on(run):
    source = """
    import subprocess
    subprocess.run([sys.executable, "-c", "import torch; raise ValueError('no nvcc')"], stderr=subprocess.DEVNULL)
    subprocess.run([sys.executable, "-c", "import torch, os; os.kill(os.getpid(), 11)"])
    train()
    """
    assert run(source).outcome is Outcome.ENDED


def test_an_end_without_training(run):
    ended = run("print('help')")
    assert (ended.outcome, ended.exit_status) == (Outcome.NO_TRAINING, 0)
    assert "without a training step" in ended.message


def test_an_end_with_a_status_before_training(run):
    ended = run("print('\\x1b[31musage: no such flag\\x00'); sys.exit(2)")
    assert (ended.outcome, ended.exit_status) == (Outcome.EXCEPTION, 2)
    assert ended.message == "exit status 2; it last printed: usage: no such flag\\x00"


# floods of output


def test_a_gigabyte_of_output_takes_little_room_and_its_end_is_kept(start_trial, python, tmp_path):
    source = """
chunk = b"x" * 63 + b"\\n"
chunk *= 1 << 14
for _ in range(512):
    os.write(1, chunk)
    os.write(2, chunk)
train()
print("the very end", flush=True)
raise ValueError("after the flood")
"""
    (tmp_path / "script.py").write_text(PREAMBLE + source)
    executor, trial = start_trial([python, "script.py"])
    log = tmp_path / "trials" / "t1" / "output.log"
    largest = watch_room(log)
    ended = trial.wait_ready(executor.now() + 240)
    largest_bytes = largest()
    assert ended.outcome is Outcome.EXCEPTION
    assert "after the flood" in ended.message
    trial.close()
    assert largest_bytes < 400 << 20
    assert log.stat().st_size < 200_000
    assert b"the very end\n" in log.read_bytes()


def watch_room(path):
    """Starts to look how much room a file takes; what it returns ends that, and gives the most that was seen."""
    sizes, stop = [0], threading.Event()

    def look():
        while not stop.wait(0.01):
            if path.exists():
                sizes.append(path.stat().st_blocks * 512)

    thread = threading.Thread(target=look)
    thread.start()

    def most():
        stop.set()
        thread.join()
        return max(sizes)

    return most


@pytest.mark.parametrize(
    "printing",
    [
        "sys.stdout.write('y' * 100_000_000)",
        "sys.stdout.buffer.write(os.urandom(1 << 22))",
        "[sys.stdout.write(f'\\r{i} %') for i in range(100000)]",
    ],
)
def test_odd_output_harms_nothing(run, printing):
    ended = run(f"train(); {printing}; sys.stdout.flush(); os.kill(os.getpid(), 9)")
    assert ended.outcome is Outcome.SIGNAL
    assert len(ended.message) < 1000
    assert ended.message.isprintable()


# a full disk


@pytest.mark.parametrize(
    "writing",
    [
        "file = open('/dev/full', 'w'); file.write('x' * 100000)",
        "torch.save(torch.zeros(1 << 20), '/dev/full')",
        "print('x' * 100000, file=open('/dev/full', 'w'), flush=True)",
    ],
)
def test_a_disk_that_is_full_for_the_script(run, writing):
    ended = run(f"train()\n{writing}\n")
    assert ended.outcome is Outcome.DISK_FULL
    assert "MiB are free" in ended.message
