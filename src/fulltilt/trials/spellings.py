"""How programs spell what went wrong: memory or disk that ran out, processes that were killed, peers that were lost.

Matched narrowly. A script may well print "out of memory" and go on, and an exception about a view or about Triton's
"out of resource: shared memory" (a kernel's tile that is too large) is no reason for a smaller batch.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

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


def killed_process(message: str) -> str | None:
    """Who was killed by what, where an exception says that: "a loader's worker was killed by signal SIGSEGV"."""
    loader = _KILLED_LOADER.search(message)
    if loader is not None:
        name = next((_SIGNALS[words] for words in _SIGNALS if words in loader[1]), "")
        return "a loader's worker was killed" + (f" by signal {name}" if name else " or ended itself")
    child = _KILLED_CHILD.search(message)
    if child is None:
        return None
    who = f"process {child['number']} of those it started" if child["number"] else "a process that it started"
    return f"{who} was killed by signal {child['spawned'] or child['launched'] or child['called']}"


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
