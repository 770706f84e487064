"""Buffers at the end of the recorded steps."""

from __future__ import annotations

import statistics
from collections.abc import Iterator

from fulltilt.numerics.distance import distance, is_finite, relative_distance, size
from fulltilt.numerics.envelope import Envelope, Observation
from fulltilt.numerics.fields import largest_distance
from fulltilt.numerics.parameters import undetermined, updates
from fulltilt.records.record import Evidence, TensorSketch


def check_buffers(candidate: Evidence, baseline: Evidence, envelope: Envelope) -> Iterator[Observation]:
    """The set of buffers; counts and masks, which must be equal; running statistics, against the envelope."""
    if set(candidate.buffers) != set(baseline.buffers):
        name = min(set(candidate.buffers) ^ set(baseline.buffers))
        yield Observation(f"buffers: {name} is not in both the candidate and the baseline", True)
    common = [name for name, buffer in baseline.buffers.items() if name in candidate.buffers and is_finite(buffer)]
    counts = [name for name in common if _is_count(name, baseline, envelope)]
    if counts:
        yield _check_counts(candidate, baseline, counts)
    statistics_names = [name for name in common if name not in counts and is_finite(candidate.buffers[name])]
    if statistics_names:
        yield _check_statistics(candidate, baseline, envelope, statistics_names)
    if not baseline.buffers:
        yield Observation("buffers: there are none")


def _is_count(name: str, baseline: Evidence, envelope: Envelope) -> bool:
    """Whole numbers that no run of the envelope changes."""
    whole = all(value.is_integer() for value in baseline.buffers[name].projection)
    return whole and largest_distance(name, baseline.buffers, [run.buffers for run in envelope.runs]) == 0


def _check_counts(candidate: Evidence, baseline: Evidence, names: list[str]) -> Observation:
    for name in names:
        ours, theirs = candidate.buffers[name], baseline.buffers[name]
        if distance(ours, theirs) != 0:
            return Observation(f"counting buffers: {name} is {_value(ours)}, in the baseline {_value(theirs)}", True)
    return Observation(f"counting buffers: {len(names)} equal to the baseline's")


def _value(sketch: TensorSketch) -> str:
    return f"{sketch.projection[0]:g}" if sketch.numel == 1 else f"of norm {sketch.norm:g}"


def _check_statistics(candidate: Evidence, baseline: Evidence, envelope: Envelope, names: list[str]) -> Observation:
    typical = {kind: _typical(baseline, envelope, names, kind) for kind in {_kind(name) for name in names}}
    runs = [run.buffers for run in envelope.runs]
    drifts = _drifts(candidate, baseline, envelope)
    allowed = {
        name: envelope.factor
        * max(largest_distance(name, baseline.buffers, runs), typical[_kind(name)] * baseline.buffers[name].norm)
        + envelope.floor * (baseline.buffers[name].norm or 1.0)
        + (drifts.get(baseline.buffers[name].numel, 0.0) if name.endswith("mean") else 0.0)
        for name in names
    }
    gaps = {name: distance(candidate.buffers[name], baseline.buffers[name]) for name in names}
    worst = max(names, key=lambda name: gaps[name] / allowed[name])
    text = (
        f"buffers: {worst} is furthest, by {gaps[worst]:.2g} (norm {baseline.buffers[worst].norm:.3g}), allowed "
        f"{allowed[worst]:.2g} ({envelope.name})"
    )
    return Observation(text, gaps[worst] > allowed[worst])


def _typical(baseline: Evidence, envelope: Envelope, names: list[str], kind: str) -> float:
    """The largest median of relative distances among buffers of one kind: means drift where variances do not."""
    alike = [name for name in names if _kind(name) == kind]
    return envelope.largest(
        lambda run: statistics.median(
            relative_distance(run.buffers[name], baseline.buffers[name]) if name in run.buffers else 0.0
            for name in alike
        )
    )


def _kind(name: str) -> str:
    """ "running_mean" of "Net#0.norm.running_mean"."""
    return name.rpartition(".")[2]


def _drifts(candidate: Evidence, baseline: Evidence, envelope: Envelope) -> dict[int, float]:
    """Number of elements -> how far parameters of this size that only follow rounding noise have moved.

    The running mean of a BatchNorm follows the bias before it, whose true gradient is zero; `check_updates` bounds it.
    """
    moved = [updates(candidate), updates(baseline)]
    drifts: dict[int, float] = {}
    for name in undetermined(baseline, envelope):
        numel = baseline.parameters[name].start.numel
        drift = sum(size(field[name]) for field in moved if name in field and is_finite(field[name]))
        drifts[numel] = max(drift, drifts.get(numel, 0.0))
    return drifts
