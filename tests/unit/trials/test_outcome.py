import pytest

from fulltilt.records.record import Environment, ExceptionRecord, WorkerRecord
from fulltilt.records.words import Outcome
from fulltilt.trials.outcome import classify

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


def test_a_clean_end_without_a_step_is_no_training():
    assert classify(0, None, "hello", num_steps=0).outcome is Outcome.NO_TRAINING


def test_the_message_names_exception_and_place():
    ended = classify(1, record_with("ValueError", "bad batch\nsecond line"), "", num_steps=0)
    assert ended.message == "ValueError: bad batch at train.py:3 in main"


def test_a_signal_is_named_and_its_status_is_the_shells():
    ended = classify(-11, None, "last words", num_steps=0)
    assert (ended.message, ended.exit_status) == ("killed by signal SIGSEGV; last words", 139)
