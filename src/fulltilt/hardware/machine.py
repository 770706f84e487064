"""Describes the machine: processor and memory from the system, torch and device from a probe or a worker's record."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import platform
import socket
import subprocess
from collections.abc import Sequence
from pathlib import Path

import psutil

from fulltilt.records.record import Environment
from fulltilt.records.result import MachineRecord

_PROBE = """
import json, sys, torch
cuda = torch.cuda.is_available()
print(json.dumps({
    "python": ".".join(map(str, sys.version_info[:3])), "torch": torch.__version__,
    "device": "cuda" if cuda else "cpu",
    "device_name": torch.cuda.get_device_name() if cuda else "",
    "num_threads": torch.get_num_threads(),
    "cpu_capability": torch.backends.cpu.get_cpu_capability(),
}))
"""


def this_machine() -> MachineRecord:
    """What can be told without torch."""
    return MachineRecord(
        hostname_hash=hashlib.sha256(socket.gethostname().encode()).hexdigest()[:12],
        system=f"{platform.system()} {platform.machine()}",
        cpu=_cpu_name(),
        num_cpus=len(psutil.Process().cpu_affinity()) if hasattr(psutil.Process, "cpu_affinity") else _num_cpus(),
        memory_bytes=psutil.virtual_memory().total,
        cpu_capability=" ".join(cpu_features()),
    )


def with_environment(machine: MachineRecord, environment: Environment) -> MachineRecord:
    """The machine with what a worker said of its torch and device."""
    capability = " ".join([environment.cpu_capability, *cpu_features()])
    return dataclasses.replace(
        machine,
        python=environment.python,
        torch=environment.torch,
        device=environment.device,
        device_name=environment.device_name,
        num_threads=environment.num_threads,
        cpu_capability=capability,
    )


def probe(python: Sequence[str]) -> Environment | None:
    """torch as the interpreter `python` has it, asked in a process of its own; None when it has none."""
    try:
        done = subprocess.run([*python, "-c", _PROBE], capture_output=True, text=True, timeout=120, check=True)
        return Environment(**json.loads(done.stdout.strip().splitlines()[-1]))
    except (OSError, subprocess.SubprocessError, ValueError, IndexError, TypeError):
        return None


def cpu_features() -> list[str]:
    """The processor features that decide which precisions are fast, by Linux' names; empty where not known."""
    wanted = ("avx2", "avx512f", "avx512_bf16", "avx512_fp16", "amx_tile", "amx_bf16", "amx_fp16", "bf16", "sve")
    present = set(_cpuinfo("flags").split()) | set(_cpuinfo("Features").split())
    return [feature for feature in wanted if feature in present]


def _cpu_name() -> str:
    return _cpuinfo("model name") or platform.processor() or platform.machine()


def _cpuinfo(key: str) -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines():
            name, _, value = line.partition(":")
            if name.strip() == key:
                return value.strip()
    except OSError:
        pass
    return ""


def _num_cpus() -> int:
    return psutil.cpu_count() or 1
