"""cuDNN's own search in the worker: switched on right after torch is imported, read back later."""

from __future__ import annotations

import torch

from fulltilt.technique import Applied, NoEffect, Site
from fulltilt.techniques.cudnn_benchmark.spec import CudnnBenchmarkOptions


def apply(site: Site, options: CudnnBenchmarkOptions) -> Applied | NoEffect:
    """Switch the search on."""
    if not torch.cuda.is_available():
        return NoEffect(reason="no CUDA device")
    if torch.backends.cudnn.benchmark:
        return NoEffect(reason="it is on already")
    torch.backends.cudnn.benchmark = True
    return Applied(detail="cuDNN searches for the fastest algorithms", engaged=_proof)


def _proof() -> str | None:
    """None where the script has switched it off again, or nothing ran on CUDA."""
    return "still on" if torch.backends.cudnn.benchmark and torch.cuda.is_initialized() else None
