import pytest

from fulltilt.records.record import ExceptionRecord
from fulltilt.records.words import Outcome
from fulltilt.trials.spellings import (
    inner_traceback,
    is_lost_peer,
    is_shared_memory,
    killed_process,
    kind_of_exception,
    kind_of_output,
)


def exception(type_name, message, traceback=""):
    return ExceptionRecord(type_name=type_name, type_names=(), message=message, where="", traceback=traceback)


@pytest.mark.parametrize(
    "message",
    [
        "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 23.68 GiB",
        "HIP out of memory. Tried to allocate 2.00 GiB",
        "XPU out of memory. Tried to allocate 2.00 GiB",
        "MPS backend out of memory (MPS allocated: 8.00 GB, other allocations: 1.00 MB, max allowed: 9.07 GB)",
        "CUDA error: out of memory\nCUDA kernel errors might be asynchronously reported",
        "HIP error: out of memory",
        "CUDA driver error: CUDA_ERROR_OUT_OF_MEMORY",
        "cudaErrorMemoryAllocation",
        "hipErrorOutOfMemory",
        "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
        "cuDNN error: CUDNN_STATUS_ALLOC_FAILED",
        "cusolver error: CUSOLVER_STATUS_ALLOC_FAILED, when calling `cusolverDnCreate(handle)`",
        "cuFFT error: CUFFT_ALLOC_FAILED",
        "CUDA error: HIPBLAS_STATUS_ALLOC_FAILED when calling `hipblasCreate(handle)`",
        "RESOURCE_EXHAUSTED: Out of memory while trying to allocate 17179869184 bytes.",
        "RESOURCE_EXHAUSTED: XLA:TPU compile permanent error. Attempting to allocate 20.1G",
        "NCCL error in: ProcessGroupNCCL.cpp:1970, unhandled cuda error. Cuda failure 2 'out of memory'",
        "[enforce fail at alloc_cpu.cpp:117] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to "
        "allocate 4503599627370496 bytes. Error code 12 (Cannot allocate memory)",
        "DefaultCPUAllocator: not enough memory: you tried to allocate 1000 bytes.",
        "[Errno 12] Cannot allocate memory",
        "Unable to allocate 1.00 TiB for an array with shape (1, 2)",
        "unable to mmap 8388608 bytes from file </torch_12_3_0>: Cannot allocate memory (12)",
        "std::bad_alloc",
    ],
)
def test_each_spelling_of_memory_that_ran_out(message):
    assert kind_of_exception(("builtins.RuntimeError",), message) is Outcome.OUT_OF_MEMORY


@pytest.mark.parametrize(
    "names",
    [
        ("torch.OutOfMemoryError", "builtins.RuntimeError"),
        ("torch.cuda.OutOfMemoryError",),
        ("numpy._core._exceptions._ArrayMemoryError", "builtins.MemoryError"),
        ("builtins.MemoryError",),
    ],
)
def test_each_type_for_memory_that_ran_out(names):
    assert kind_of_exception(names, "") is Outcome.OUT_OF_MEMORY


@pytest.mark.parametrize(
    "message",
    [
        "view size is not compatible with input tensor's size and stride (at least one dimension spans ...)",
        "out of resource: shared memory, Required: 131072, Hardware limit: 101376. Reducing block sizes may help",
        "unable to open shared memory object </torch_1_2_3> in read-write mode: Too many open files (24)",
        "the replay memory is out of samples",
        "index 12 is out of bounds for memory bank of size 8",
        "mat1 and mat2 shapes cannot be multiplied",
        "CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasSgemm`",
    ],
)
def test_what_only_sounds_like_it(message):
    assert kind_of_exception(("builtins.RuntimeError",), message) is None


@pytest.mark.parametrize(
    "message",
    [
        "[Errno 28] No space left on device: 'model.pt'",
        "[Errno 122] Disk quota exceeded",
        "[enforce fail at inline_container.cc:862] . PytorchStreamWriter failed writing file data/0: file write failed",
        "[enforce fail at inline_container.cc:672] . unexpected pos 64 vs 0",
        "database or disk is full",
    ],
)
def test_each_spelling_of_a_full_disk(message):
    assert kind_of_exception(("builtins.OSError",), message) is Outcome.DISK_FULL


@pytest.mark.parametrize(
    "message",
    [
        "unable to allocate shared memory(shm) for file </torch_1_2_3>: No space left on device (28)",
        "unable to write to file </torch_1_2_3>: No space left on device (28)",
        "unable to resize file </torch_1_2_3> to the right size: No space left on device (28)",
    ],
)
def test_shared_memory_is_memory_not_disk(message):
    assert kind_of_exception(("builtins.RuntimeError",), message) is Outcome.OUT_OF_MEMORY
    assert is_shared_memory(message)


@pytest.mark.parametrize(
    ("output", "kind"),
    [
        ("Traceback (most recent call last):\n  ...\nMemoryError\n", Outcome.OUT_OF_MEMORY),
        ("[rank1]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB\n", Outcome.OUT_OF_MEMORY),
        ("terminate called after throwing an instance of 'std::bad_alloc'\n  what():  std::bad_alloc\n", "memory"),
        ("OSError: [Errno 28] No space left on device\n", Outcome.DISK_FULL),
        ("cp: error writing 'a': No space left on device\n", Outcome.DISK_FULL),
        ("step 3: CUDA out of memory, batch skipped\nValueError: bad\n", None),
        ("ran out of memory? no: 12 GiB free\n", None),
        ("MemoryError: long ago\n" + "step\n" * 2000 + "ValueError: bad\n", None),
    ],
)
def test_of_output_only_the_last_words_count(output, kind):
    assert kind_of_output(output) is (Outcome.OUT_OF_MEMORY if kind == "memory" else kind)


@pytest.mark.parametrize(
    ("message", "words"),
    [
        (
            "DataLoader worker (pid 12) is killed by signal: Segmentation fault. ",
            "loader's worker was killed by signal",
        ),
        ("DataLoader worker (pid 12) is killed by signal: Killed. ", "SIGKILL"),
        ("DataLoader worker (pid(s) 12, 13) exited unexpectedly", "a loader's worker was killed, or ended itself"),
        ("process 1 terminated with signal SIGSEGV", "process 1 of those it started was killed by signal SIGSEGV"),
        ("exitcode  : -9 (pid: 4)\n  traceback : Signal 9 (SIGKILL) received by PID 4", "SIGKILL"),
        ("Command '['python', 'x.py']' died with <Signals.SIGABRT: 6>.", "SIGABRT"),
    ],
)
def test_exceptions_that_tell_of_a_killed_process(message, words):
    assert words in str(killed_process(exception("RuntimeError", message)))


@pytest.mark.parametrize("type_name", ["EOFError", "ConnectionResetError", "FileNotFoundError"])
@pytest.mark.parametrize(
    ("output", "by"),
    [("ERROR: Unexpected segmentation fault encountered in worker.\x00\n", "SIGSEGV"), ("", "")],
)
def test_a_loaders_worker_that_died_while_a_batch_was_fetched_from_it(type_name, output, by):
    trace = 'File "torch/utils/data/dataloader.py", line 1291, in _try_get_data\n'
    killed = killed_process(exception(type_name, "", trace), output)
    assert (killed.who, killed.by) == ("a loader's worker", by)
    assert killed_process(exception(type_name, "", 'File "train.py", line 3, in main\n'), output) is None


def test_a_worker_that_crashed_has_said_of_what():
    gone = exception("RuntimeError", "DataLoader worker (pid(s) 12) exited unexpectedly")
    assert killed_process(gone, "ERROR: Unexpected bus error encountered in worker. This might be ...").by == "SIGBUS"


def test_a_rank_that_its_launcher_ended_was_not_killed():
    assert killed_process(exception("Error", "traceback : Signal 15 (SIGTERM) received by PID 4")) is None


@pytest.mark.parametrize(
    "message",
    [
        "[../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer [127.0.0.1]:9",
        "NCCL error: remote process exited or there was a network error",
        "[Errno 32] Broken pipe",
    ],
)
def test_a_lost_peer_is_a_consequence(message):
    assert is_lost_peer(("builtins.RuntimeError",), message)


def test_the_traceback_that_a_worker_handed_on_is_found():
    message = (
        "Caught ValueError in DataLoader worker process 0.\nOriginal Traceback (most recent call last):\nValueError"
    )
    assert inner_traceback(message).endswith("ValueError")
    assert inner_traceback("ValueError: odd") == ""
