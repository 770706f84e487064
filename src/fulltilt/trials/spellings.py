"""How programs spell what went wrong: memory or disk that ran out, processes that were killed, peers that were lost.

Matched narrowly. A script may well print "out of memory" and go on, and an exception about a view or about Triton's
"out of resource: shared memory" (a kernel's tile that is too large) is no reason for a smaller batch.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from fulltilt.records.record import ExceptionRecord
from fulltilt.records.words import Outcome

_OUT_OF_MEMORY_TYPES = (
    "MemoryError",
    "torch.OutOfMemoryError",
    "torch.cuda.OutOfMemoryError",
    "torch.cuda.memory.OutOfMemoryError",
)
_OUT_OF_MEMORY = re.compile(
    # torch's allocators, and runtimes: "CUDA out of memory.", "CUDA error: out of memory", "HIP out of memory"
    r"\b(CUDA|HIP|ROCm|XPU|NPU|HPU|MUSA|MPS backend)( error:)? out of memory"
    r"|out of memory\. Tried to allocate|Tried to allocate .{1,40} out of memory"
    r"|(cudaErrorMemoryAllocation|hipErrorOutOfMemory|CUDA_ERROR_OUT_OF_MEMORY|UR_RESULT_ERROR_OUT_OF_(DEVICE|HOST)_)"
    # XLA, JAX
    r"|RESOURCE_EXHAUSTED: .{0,120}(Out of memory|Attempting to allocate|Failed to allocate)"
    # libraries: cuBLAS, cuDNN, cuSPARSE, cuSOLVER, cuFFT and their HIP counterparts
    r"|\b(CU|HIP)?(BLAS|DNN|SPARSE|SOLVER|FFT|RAND)_(STATUS_)?ALLOC(ATION)?_FAILED|\brocblas_status_memory_error"
    r"|\bmiopenStatusAllocFailed|CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED"
    r"|(NCCL|RCCL|Cuda failure).{0,200}out of memory"
    # the host: torch's CPU allocator, NumPy, C++, the system
    r"|DefaultCPUAllocator: (can't allocate|not enough) memory|\bUnable to allocate [\d.]+ .?i?B for an array"
    r"|\bstd::bad_alloc|Cannot allocate memory|\bcannot allocate memory for thread-local data",
    re.IGNORECASE,
)
_OUT_OF_MEMORY_NAME = re.compile(r"([\w.]+\.)?(_Array)?(MemoryError|OutOfMemoryError)\b")
_LAST_WORDS = re.compile(
    r"^(?:\[?rank\s?\d+\]?:\s*)?(?P<what>[\w.]+(?:Error|Exception)\b.*|\s*what\(\):.*|terminate called .*"
    r"|.*: No space left on device)$",
    re.MULTILINE,
)
"""A line of output that says what a program died of: an exception of Python or C++, not a sentence of the script's."""
_DISK_FULL = re.compile(
    r"No space left on device|Disk quota exceeded|\[Errno (28|122)\]"
    r"|PytorchStreamWriter failed writing|inline_container\.cc:\d+\] \. unexpected pos"  # torch.save has no better word
    r"|database or disk is full|\bENOSPC\b",
)
_SHARED_MEMORY = re.compile(
    r"out of shared memory|insufficient shared memory \(shm\)|unable to allocate shared memory ?\(shm\)"
    r"|unable to (write to|mmap|resize) .*</torch_",
)
_KILLED_LOADER = re.compile(
    r"DataLoader worker \(pid\(?s?\)?[ \d,]*\) (?:is killed by signal: |exited unexpectedly)(.*)"
)
_CRASHED_LOADER = re.compile(r"ERROR: Unexpected (.+) encountered in worker")
_LOST_LOADER_TYPES = (
    "EOFError",
    "ConnectionResetError",
    "ConnectionRefusedError",
    "BrokenPipeError",
    "FileNotFoundError",
)
_KILLED_CHILD = re.compile(
    r"process (?P<number>\d+) terminated with signal (?P<spawned>SIG\w+)"
    r"|Signal \d+ \((?P<launched>(?!SIGTERM)SIG\w+)\) received by PID|died with <Signals\.(?P<called>SIG\w+)"
)
_SIGNALS = {
    "Segmentation fault": "SIGSEGV",
    "Aborted": "SIGABRT",
    "Bus error": "SIGBUS",
    "Killed": "SIGKILL",
    "Illegal instruction": "SIGILL",
    "Floating point exception": "SIGFPE",
    "Floating-point exception": "SIGFPE",
    "Terminated": "SIGTERM",
}
_LOST_PEER_TYPES = (
    "torch.distributed.elastic.multiprocessing.errors.ChildFailedError",
    "torch.multiprocessing.spawn.ProcessExitedException",
    "subprocess.CalledProcessError",
    "torch.distributed.DistNetworkError",
    "torch._C._DistNetworkError",
)
_LOST_PEER = re.compile(
    r"Connection (closed|reset) by peer|Connection refused|remote process exited or there was a network error"
    r"|Socket Timeout|Broken pipe|recvBytes|sendBytes|NCCL communicator was aborted|ncclRemoteError"
    r"|Timed out waiting .*(recv|send) operation",
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Killed:
    """A process that was killed."""

    who: str
    by: str
    """Name of the signal; empty where that is not known: it may have ended itself."""

    def __str__(self) -> str:
        return f"{self.who} was killed" + (f" by signal {self.by}" if self.by else ", or ended itself")


def kind_of_exception(type_names: Sequence[str], message: str) -> Outcome | None:
    """OUT_OF_MEMORY or DISK_FULL, where the exception is one of those.

    Args:
        type_names: qualified names of its class and their bases.
    """
    if {name.removeprefix("builtins.") for name in type_names} & set(_OUT_OF_MEMORY_TYPES):
        return Outcome.OUT_OF_MEMORY
    if _SHARED_MEMORY.search(message) and not _KILLED_LOADER.search(message):
        return Outcome.OUT_OF_MEMORY
    return kind_of_text(message) or kind_of_output(inner_traceback(message))


def kind_of_text(text: str) -> Outcome | None:
    """OUT_OF_MEMORY or DISK_FULL, where the text says so."""
    if _OUT_OF_MEMORY.search(text):
        return Outcome.OUT_OF_MEMORY
    return Outcome.DISK_FULL if _DISK_FULL.search(text) else None


def kind_of_output(output: str) -> Outcome | None:
    """The same of what a command that failed has printed: only its last words count, not what it said and survived."""
    for words in _LAST_WORDS.finditer(output[-4000:]):
        kind = kind_of_text(words[0])
        if _OUT_OF_MEMORY_NAME.match(words["what"]):
            return Outcome.OUT_OF_MEMORY
        if kind is not None:
            return kind
    return None


def is_shared_memory(text: str) -> bool:
    """Was it /dev/shm that ran out?"""
    return _SHARED_MEMORY.search(text) is not None


def killed_process(exception: ExceptionRecord, output: str = "") -> Killed | None:
    """Who was killed by what, where an exception says that: of its message, or as torch's loader failed to read on.

    Args:
        output: of the command; a loader's worker that crashes says so on standard error.
    """
    loader = _KILLED_LOADER.search(exception.message)
    if loader is not None or _lost_its_loader(exception):
        said = [found[1].lower() for found in (loader, _CRASHED_LOADER.search(output)) if found is not None]
        by = [name for words, name in _SIGNALS.items() if words.lower() in " ".join(said)]
        return Killed(who="a loader's worker", by=by[0] if by else "")
    child = _KILLED_CHILD.search(exception.message)
    if child is None:
        return None
    who = f"process {child['number']} of those it started" if child["number"] else "a process that it started"
    return Killed(who=who, by=child["spawned"] or child["launched"] or child["called"])


def _lost_its_loader(exception: ExceptionRecord) -> bool:
    """The worker died while a batch was fetched from it, before its death was noticed."""
    is_fetching = "in rebuild_storage_fd" in exception.traceback or "in _try_get_data" in exception.traceback
    return is_fetching and exception.type_name in _LOST_LOADER_TYPES


def signal_of(words: str) -> str:
    """ "SIGSEGV" for "Segmentation fault"."""
    return _SIGNALS.get(words, words)


def is_lost_peer(type_names: Sequence[str], message: str) -> bool:
    """Does the exception only say that another process is gone, or has failed?"""
    return bool(set(type_names) & set(_LOST_PEER_TYPES)) or _LOST_PEER.search(message) is not None


def inner_traceback(message: str) -> str:
    """The traceback of another process that the message of an exception holds; empty when there is none.

    torch hands on so what failed in a loader's worker, and in a process started by `torch.multiprocessing.spawn`.
    """
    found = re.search(r"(Original )?Traceback \(most recent call last\):.*", message, re.DOTALL)
    return found[0] if found is not None else ""
