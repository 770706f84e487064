"""Reads scalars off their device many at a time: a read of each step's loss would wait for the device in each step."""

from __future__ import annotations

import math

import torch

_BATCH = 256


def kept(value: torch.Tensor) -> torch.Tensor:
    """A copy to read later: the original may be written over (CUDA graphs reuse their outputs)."""
    return value.detach().clone().reshape(())


class DeferredMeans:
    """Appends means of scalars to lists of floats; all are there after `read()`."""

    def __init__(self) -> None:
        self._waiting: list[tuple[list[float], int, list[torch.Tensor]]] = []
        self._num_waiting = 0

    def append(self, numbers: list[float], scalars: list[torch.Tensor]) -> None:
        """Reserve the next place in `numbers` for the mean of `scalars`."""
        numbers.append(math.nan)
        self._waiting.append((numbers, len(numbers) - 1, scalars))
        self._num_waiting += len(scalars)
        if self._num_waiting >= _BATCH:
            self.read()

    def read(self) -> None:
        """Fill in every reserved place."""
        waiting, self._waiting, self._num_waiting = self._waiting, [], 0
        values = iter(_read([scalar for _, _, scalars in waiting for scalar in scalars]))
        for numbers, index, scalars in waiting:
            numbers[index] = sum(next(values) for _ in scalars) / len(scalars)


def _read(scalars: list[torch.Tensor]) -> list[float]:
    """Their values, with one transfer for each kind of scalar."""
    kinds: dict[tuple[torch.device, torch.dtype], list[int]] = {}
    for index, scalar in enumerate(scalars):
        kinds.setdefault((scalar.device, scalar.dtype), []).append(index)
    values = [math.nan] * len(scalars)
    with torch.no_grad():
        for indices in kinds.values():
            numbers = torch.stack([scalars[index] for index in indices]).tolist()
            for index, number in zip(indices, numbers, strict=True):
                values[index] = float(number)
    return values
