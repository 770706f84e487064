"""One sample, taken to see what workers would do. No random stream moves on, and the dataset stays as it was."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.data import DataLoader

from fulltilt.numerics.nested import tensors_in
from fulltilt.numerics.rewind import streams_fingerprint, streams_point


@dataclass(frozen=True, slots=True)
class Sample:
    """What is known from one sample; nothing where the dataset does not go by numbers."""

    tensors: tuple[torch.Tensor, ...] = ()
    collated: tuple[torch.Tensor, ...] = ()
    """Tensors of a batch of two."""
    draws: bool = False
    """Random numbers, which workers would draw from streams of their own."""
    counters: tuple[str, ...] = ()
    """Numbers that the dataset keeps and changes while it is read."""


def look(loader: DataLoader[Any]) -> Sample:
    """Take a sample, and a batch of it.

    A dataset that opens its file at the first sample must do so in each worker: what it has opened here is forgotten,
    or all workers would share one descriptor with one position.
    """
    restore, before_it = streams_point(), streams_fingerprint()
    attributes = [(dataset, dict(vars(dataset))) for dataset in nested(loader.dataset) if hasattr(dataset, "__dict__")]
    try:
        sample = loader.dataset[0]
        return Sample(
            tensors=tuple(tensors_in(sample)),
            draws=streams_fingerprint() != before_it,
            collated=_collated(loader, sample),
            counters=tuple(name for dataset, before in attributes for name in _counters(before, vars(dataset))),
        )
    except Exception:  # a dataset of its own kind: the trial will tell
        return Sample()
    finally:
        restore()
        for dataset, before in attributes:
            dataset.__dict__.clear()
            dataset.__dict__.update(before)


def nested(dataset: Any) -> list[Any]:
    """The dataset and those that it wraps (Subset, ConcatDataset)."""
    inner = [*getattr(dataset, "datasets", ()), *filter(None, [getattr(dataset, "dataset", None)])]
    return [dataset, *(found for wrapped in inner for found in nested(wrapped))]


def _collated(loader: DataLoader[Any], sample: Any) -> tuple[torch.Tensor, ...]:
    try:
        return tuple(tensors_in(loader.collate_fn([sample, sample])))
    except Exception:  # it may need more than two, or samples that differ
        return ()


def _counters(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    return [
        name
        for name, value in after.items()
        if isinstance(value, int | float) and isinstance(before.get(name), int | float) and before[name] != value
    ]
