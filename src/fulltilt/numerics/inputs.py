"""What root modules are given in training: each tensor in a few numbers, and how many rows are distinct. Worker side.

A loss tells little about the data behind it: batches in another order, a last one that is padded, samples that come
twice because every worker reads all of them.
"""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import nn

from fulltilt.numerics.nested import tensors_in
from fulltilt.numerics.sketching import pseudo_random, sketch, state_signature
from fulltilt.records.record import InputEvidence, RowCount, TensorSketch

NUM_BUCKETS = 4
_MAX_TENSORS_PER_STEP = 32
_MAX_ROW_NUMEL = 1 << 22
_CHUNK_NUMEL = 1 << 20


class InputCollector:
    """`called` for each training call of a root module, `step_done` at the end of each step."""

    def __init__(self) -> None:
        self._steps: list[list[InputEvidence]] = [[]]
        self._modes: list[dict[str, None]] = [{}]
        self._rows: dict[str, set[float]] = {}
        self._num_rows: dict[str, int] = {}

    def called(self, root: str, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """`module` is about to be called by the user's code."""
        for name, layer in module.named_modules():
            if not layer.training:
                self._modes[-1][f"{root}.{name}" if name else root] = None
        for index, tensor in enumerate(tensors_in((args, kwargs))):
            if len(self._steps[-1]) < _MAX_TENSORS_PER_STEP:
                self._see(f"{root}.{index}", tensor.detach())

    def step_done(self) -> None:
        self._steps.append([])
        self._modes.append({})

    def inputs(self, num_steps: int) -> tuple[tuple[InputEvidence, ...], ...]:
        return tuple(tuple(step) for step in self._steps[:num_steps])

    def modes(self, num_steps: int) -> tuple[str, ...]:
        return tuple(_named(modes) for modes in self._modes[:num_steps])

    def rows(self) -> dict[str, RowCount]:
        return {name: RowCount(distinct=len(self._rows[name]), total=total) for name, total in self._num_rows.items()}

    def _see(self, name: str, tensor: torch.Tensor) -> None:
        self._steps[-1].append(InputEvidence(name=name, kind=state_signature(tensor), values=folded(sketch(tensor))))
        if tensor.dim() >= 2 and tensor.layout is torch.strided and 0 < tensor[0].numel() <= _MAX_ROW_NUMEL:
            self._rows.setdefault(name, set()).update(_row_sums(tensor))
            self._num_rows[name] = self._num_rows.get(name, 0) + tensor.shape[0]


def folded(whole: TensorSketch) -> TensorSketch:
    """The sketch in four buckets: its numbers with pseudo-random weights of variance one, so no two are alike."""
    if len(whole.projection) <= NUM_BUCKETS:
        return whole
    weights = _weights(len(whole.projection))
    sums = [0.0] * NUM_BUCKETS
    for index, (value, weight) in enumerate(zip(whole.projection, weights, strict=True)):
        sums[index % NUM_BUCKETS] += value * weight
    return TensorSketch(norm=whole.norm, projection=tuple(sums), numel=whole.numel)


@functools.lru_cache(maxsize=64)
def _weights(numel: int) -> tuple[float, ...]:
    return tuple((pseudo_random(numel) * 3**0.5).tolist())


def _row_sums(tensor: torch.Tensor) -> list[float]:
    """A weighted sum of each row: equal for equal rows, and for others by chance only."""
    row_numel = tensor[0].numel()
    weights = pseudo_random(row_numel).to(tensor.device)
    rows_at_once = max(1, _CHUNK_NUMEL // row_numel)
    sums: list[float] = []
    for start in range(0, tensor.shape[0], rows_at_once):
        rows = tensor[start : start + rows_at_once].reshape(-1, row_numel)
        real = torch.view_as_real(rows.resolve_conj()).sum(-1) if rows.is_complex() else rows
        sums += (real.to(torch.float64) * weights).sum(1).tolist()
    return sums


def _named(modes: dict[str, None]) -> str:
    names = list(modes)
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
