import pytest

from fulltilt.records.record import Environment, ExceptionRecord, FailureRecord, WorkerRecord
from fulltilt.records.words import Outcome
from fulltilt.trials.outcome import classify
from fulltilt.trials.traces import Crash

ENVIRONMENT = Environment(python="3.11", torch="2.13", device="cpu", device_name="", num_threads=1, cpu_capability="")


def record_with(type_name, message, *bases):
    exception = ExceptionRecord(
        type_name=type_name, type_names=bases, message=message, where="train.py:3 in main", traceback=""
    )
    return WorkerRecord(trial="t", pid=1, argv=(), environment=ENVIRONMENT, exception=exception)


@pytest.mark.parametrize(
    ("exit_status", "record", "output", "outcome"),
    [
        (0, None, "", Outcome.ENDED),
        (1, None, "ValueError: no such file", Outcome.EXCEPTION),
        (1, None, "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate", Outcome.OUT_OF_MEMORY),
        (1, record_with("OutOfMemoryError", "x", "torch.OutOfMemoryError"), "", Outcome.OUT_OF_MEMORY),
        (1, record_with("MemoryError", "", "builtins.MemoryError"), "", Outcome.OUT_OF_MEMORY),
        (
            1,
            record_with("RuntimeError", "[enforce fail] DefaultCPUAllocator: can't allocate memory"),
            "",
            Outcome.OUT_OF_MEMORY,
        ),
        (1, record_with("RuntimeError", "view size is not compatible"), "", Outcome.EXCEPTION),
        (
            1,
            record_with("BackendCompilerFailed", "x", "torch._dynamo.exc.BackendCompilerFailed"),
            "",
            Outcome.COMPILE_FAILED,
        ),
        (3, record_with("SystemExit", "3", "builtins.SystemExit"), "target not met", Outcome.ENDED),
        (3, None, "", Outcome.EXCEPTION),
        (-11, None, "", Outcome.SIGNAL),
        (-9, None, "", Outcome.SIGNAL),
        (137, None, "", Outcome.SIGNAL),
    ],
)
def test_each_ending_is_told_apart(exit_status, record, output, outcome):
    assert classify(exit_status, record, output, num_steps=5).outcome is outcome


def test_a_kill_while_the_host_ran_out_of_memory_is_that():
    ended = classify(-9, None, "", num_steps=5, host_ran_out=True)
    assert ended.outcome is Outcome.OUT_OF_MEMORY
    assert "the host ran out of memory" in ended.message


@pytest.mark.parametrize(
    ("exit_status", "name"), [(139, "SIGSEGV"), (245, "SIGSEGV"), (137, "SIGKILL"), (247, "SIGKILL"), (143, "SIGTERM")]
)
def test_a_signal_that_a_shell_or_a_launcher_passed_on_is_told_as_one(exit_status, name):
    ended = classify(exit_status, None, "", num_steps=5)
    assert (ended.outcome, ended.message, ended.exit_status) == (
        Outcome.SIGNAL,
        f"killed by signal {name}",
        exit_status,
    )


def failure(type_name, message, *bases, rank="", moment=1.0):
    exception = ExceptionRecord(
        type_name=type_name, type_names=bases, message=message, where=f"train.py:{rank or 0} in main", traceback=""
    )
    return FailureRecord(pid=1, rank=rank, moment=moment, exception=exception)


LOST = failure("RuntimeError", "Connection closed by peer [127.0.0.1]:9", "builtins.RuntimeError", rank="0")
LAUNCHER = failure(
    "ChildFailedError", "train.py FAILED", "torch.distributed.elastic.multiprocessing.errors.ChildFailedError"
)


@pytest.mark.parametrize(
    ("failures", "outcome", "words"),
    [
        ((LOST, failure("ValueError", "odd", rank="1")), Outcome.EXCEPTION, "ValueError: odd at train.py:1"),
        ((failure("ValueError", "odd", rank="1"), LOST, LAUNCHER), Outcome.EXCEPTION, "(rank 1)"),
        (
            (failure("ValueError", "odd"), failure("OutOfMemoryError", "x", "torch.OutOfMemoryError", rank="3")),
            Outcome.OUT_OF_MEMORY,
            "(rank 3)",
        ),
        ((LOST, LAUNCHER), Outcome.EXCEPTION, "Connection closed by peer"),
        ((failure("SystemExit", "3"),), Outcome.EXCEPTION, "exit status 1"),
        ((failure("ValueError", "first"), failure("ValueError", "second")), Outcome.EXCEPTION, "first"),
    ],
)
def test_of_several_failures_the_cause_is_told(failures, outcome, words):
    ended = classify(1, None, "", num_steps=5, failures=failures)
    assert ended.outcome is outcome
    assert words in ended.message


def test_a_crash_of_another_rank_is_told_rather_than_the_peer_it_lost():
    crash = Crash(what="Segmentation fault", where="train.py:7 in kernel")
    ended = classify(1, None, "", num_steps=5, failures=(LOST, LAUNCHER), crashes=(crash,))
    assert ended.outcome is Outcome.SIGNAL
    assert ended.message == "a process of it was killed by signal SIGSEGV at train.py:7 in kernel"


def test_an_exception_is_told_rather_than_the_abort_that_it_ended_in():
    ended = classify(-6, None, "terminate called", num_steps=5, failures=(failure("ValueError", "odd"),))
    assert (ended.outcome, ended.message) == (Outcome.EXCEPTION, "ValueError: odd at train.py:0 in main")


def test_an_abort_for_memory_is_memory():
    output = "terminate called after throwing an instance of 'std::bad_alloc'\n  what():  std::bad_alloc\n"
    assert classify(-6, None, output, num_steps=0).outcome is Outcome.OUT_OF_MEMORY


def test_a_loaders_worker_that_the_kernel_killed_for_memory():
    failed = failure("RuntimeError", "DataLoader worker (pid 12) is killed by signal: Killed. ")
    assert classify(1, None, "", num_steps=5, failures=(failed,)).outcome is Outcome.SIGNAL
    assert classify(1, None, "", num_steps=5, failures=(failed,), host_ran_out=True).outcome is Outcome.OUT_OF_MEMORY


def test_a_bus_error_of_a_loaders_worker_is_shared_memory_with_its_remedy():
    message = (
        "DataLoader worker (pid 12) is killed by signal: Bus error. It is possible that dataloader's workers are out "
        "of shared memory. Please try to raise your shared memory limit."
    )
    ended = classify(1, None, "", num_steps=5, failures=(failure("RuntimeError", message),))
    assert ended.outcome is Outcome.OUT_OF_MEMORY
    assert "--shm-size" in ended.message


def test_a_clean_end_without_a_step_is_no_training():
    assert classify(0, None, "hello", num_steps=0).outcome is Outcome.NO_TRAINING


def test_the_message_names_exception_and_place():
    ended = classify(1, record_with("ValueError", "bad batch\nsecond line"), "", num_steps=0)
    assert ended.message == "ValueError: bad batch at train.py:3 in main"


def test_a_signal_is_named_and_its_status_is_the_shells():
    ended = classify(-11, None, "last words", num_steps=0)
    assert (ended.message, ended.exit_status) == ("killed by signal SIGSEGV; last words", 139)
