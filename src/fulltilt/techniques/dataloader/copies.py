"""What worker processes would copy of a dataset made of Python objects.

Workers are forked and share memory, until they touch it: reading a Python object writes its reference count, and the
page is copied. A list of 200,000 small dicts ends up in every worker (pytorch/pytorch#13246). Arrays and tensors stay
shared.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterable
from typing import Any

_SAMPLE_SIZE = 50
_DEPTH = 6
_SHARE_OF_MEMORY = 0.5


def why_not(datasets: Iterable[Any], num_workers: int) -> str | None:
    """A reason against `num_workers` copies of what these datasets hold, or None."""
    held = sum(python_bytes(value) for dataset in datasets for value in getattr(dataset, "__dict__", {}).values())
    free = available_bytes()
    if free is None or held * num_workers < free * _SHARE_OF_MEMORY:
        return None
    return (
        f"the dataset holds {held / 2**20:.0f} MiB of Python objects, {num_workers} workers would copy them as they "
        f"read, and {free / 2**20:.0f} MiB are free (arrays and tensors are shared)"
    )


def python_bytes(value: Any, depth: int = _DEPTH) -> float:
    """About how many bytes of Python objects are in it; long containers by a sample of their items."""
    if depth == 0:
        return 0.0
    if isinstance(value, dict):
        return sys.getsizeof(value) + _items_bytes(value.items(), len(value), depth)
    if isinstance(value, list | tuple | set):
        return sys.getsizeof(value) + _items_bytes(value, len(value), depth)
    if isinstance(value, str | bytes | int | float):
        return float(sys.getsizeof(value))
    attributes = getattr(value, "__dict__", None)  # arrays and tensors have none that counts
    return sys.getsizeof(value) + python_bytes(attributes, depth) if attributes else 0.0


def _items_bytes(items: Iterable[Any], number: int, depth: int) -> float:
    sample = list(itertools.islice(items, _SAMPLE_SIZE))
    return number * sum(python_bytes(item, depth - 1) for item in sample) / len(sample) if sample else 0.0


def available_bytes() -> int | None:
    """Memory that is free for new processes, by the kernel and by the limit of the container."""
    found = [value for value in (_of_the_machine(), _of_the_container()) if value is not None]
    return min(found) if found else None


def _of_the_machine() -> int | None:
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            return next((int(line.split()[1]) * 1024 for line in file if line.startswith("MemAvailable:")), None)
    except OSError:
        return None


def _of_the_container(folder: str = "/sys/fs/cgroup") -> int | None:
    try:
        with open(f"{folder}/memory.max", encoding="ascii") as limit, open(f"{folder}/memory.current") as used:
            text = limit.read().strip()
            return None if text == "max" else int(text) - int(used.read())
    except (OSError, ValueError):
        return None
