"""The techniques, by name. To add one: a folder here, and its name in NAMES."""

import importlib
from functools import cache

from fulltilt.technique import Spec

NAMES = (
    "precision",
    "fused_optimizer",
    "cpu_threads",
    "channels_last",
    "matmul_precision",
    "dataloader",
    "compile",
    "cudnn_benchmark",
    "gc_freeze",
)
"""In the order in which they are tried where their bounds tie: most likely to pay first, dear ones late."""


@cache
def spec_of(name: str) -> Spec:
    """The spec of the technique `name`.

    Raises:
        KeyError: for a name not in NAMES.
    """
    if name not in NAMES:
        raise KeyError(name)
    spec: Spec = importlib.import_module(f"fulltilt.techniques.{name}.spec").SPEC
    return spec


def all_specs() -> tuple[Spec, ...]:
    """Every spec, in the order of NAMES."""
    return tuple(spec_of(name) for name in NAMES)
