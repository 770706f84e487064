"""CPU threads in the worker: set right after torch is imported, read back later."""

from __future__ import annotations

import os

import torch

from fulltilt.technique import Applied, NoEffect, Site
from fulltilt.techniques.cpu_threads.spec import CpuThreadsOptions


def apply(site: Site, options: CpuThreadsOptions) -> Applied | NoEffect:
    """Set the number of threads, flushing of denormals and the CPUs to run on."""
    wanted = options.num_threads
    done = []
    if options.affinity and _keep_to_cpus(wanted):
        done.append(f"on {wanted} CPUs")
    if wanted is not None and wanted != torch.get_num_threads():
        torch.set_num_threads(wanted)
        done.append(f"{wanted} threads")
    if options.flush_denormal and torch.set_flush_denormal(True):
        done.append("denormal numbers flushed to zero")
    if not done:
        return NoEffect(reason=f"torch uses {torch.get_num_threads()} threads, and nothing else was asked or possible")
    return Applied(detail=", ".join(done), engaged=lambda: _proof(wanted))


def _keep_to_cpus(number: int | None) -> bool:
    """Children, such as the workers of a DataLoader, are kept there too."""
    if number is None or not hasattr(os, "sched_setaffinity"):
        return False
    allowed = sorted(os.sched_getaffinity(0))
    if len(allowed) <= number:
        return False
    os.sched_setaffinity(0, allowed[:number])
    return True


def _proof(wanted: int | None) -> str | None:
    """None where the script has set another number itself since."""
    number = torch.get_num_threads()
    return f"{number} threads in use" if wanted is None or number == wanted else None
