"""Numbers per step: losses and gradient norms against the envelope's."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence

from fulltilt.numerics.envelope import Envelope, Observation
from fulltilt.numerics.thresholds import (
    LOOK_AHEAD_STEPS,
    LOOK_BACK_STEPS,
    LOSSY_SHARE_OF_LOSS,
    LOSSY_SHARE_OF_RANGE,
    MEAN_FACTOR,
)
from fulltilt.records.record import Evidence

Curve = Sequence[float]


def check_losses(candidate: Evidence, baseline: Evidence, envelope: Envelope) -> Observation:
    """Each loss of each step within factor times the envelope's largest distance around it, plus a floor."""

    def compare(index: int) -> tuple[float, Observation]:
        runs = [_losses(run, index) for run in envelope.runs]
        return _compare("losses", _losses(candidate, index), _losses(baseline, index), runs, envelope)

    slots = range(max(map(len, baseline.losses), default=0))
    return _worst([compare(index) for index in slots], "losses: there are none to compare")


def check_gradient_norms(candidate: Evidence, baseline: Evidence, envelope: Envelope) -> Observation:
    """The norm of all gradients of each step, by the same rule."""
    runs = [run.gradient_norms for run in envelope.runs]
    _, observation = _compare(
        "gradient norms", candidate.gradient_norms, baseline.gradient_norms, runs, envelope, floor=envelope.floor
    )
    return observation


def check_means(candidate: Evidence, baseline: Evidence, envelope: Envelope) -> Iterator[Observation]:
    """Among other random draws: the means over the steps of all losses and of the gradient norms.

    Draws hide a bias in one step, not in all of them. The baseline counts as one more draw. Allowed is a factor times
    the largest of: how far apart the means of the draws lie; the deviation of one step divided by the square root of
    the number of steps, should those agree by luck.
    """
    draws = [baseline, *envelope.runs[len(envelope.steady_runs) :]]
    for name, curve_of in (("mean loss", _loss_per_step), ("mean gradient norm", lambda run: run.gradient_norms)):
        steady = [curve_of(run) for run in (baseline, *envelope.steady_runs)]
        yield _check_mean(name, curve_of(candidate), [curve_of(draw) for draw in draws], steady)


def check_losses_of_lossy(candidate: Evidence, baseline: Evidence, envelope: Envelope) -> Observation:
    """The generous rule for another computation: shares of the loss and of the range of the baseline's losses."""

    def compare(index: int) -> tuple[float, Observation]:
        ours, theirs = _losses(candidate, index), _losses(baseline, index)
        finite = [value for value in theirs if math.isfinite(value)]
        span = max(finite, default=0.0) - min(finite, default=0.0)
        noise = _running_maximum(theirs, [_losses(run, index) for run in envelope.runs])
        allowed = [
            LOSSY_SHARE_OF_LOSS * abs(value) + LOSSY_SHARE_OF_RANGE * span + envelope.factor * at_step
            for value, at_step in zip(theirs, noise, strict=True)
        ]
        return _observe("losses", ours, theirs, allowed, "rule for LOSSY techniques")

    slots = range(max(map(len, baseline.losses), default=0))
    return _worst(
        [compare(index) for index in slots], "losses: there are none, so a LOSSY technique cannot be judged", True
    )


def _check_mean(name: str, ours: Curve, draws: Sequence[Curve], steady: Sequence[Curve]) -> Observation:
    num_steps = min(map(len, (ours, *draws)))
    curves = [curve[:num_steps] for curve in draws]
    if num_steps < 2 or not all(math.isfinite(value) for curve in (ours, *draws) for value in curve):
        return Observation(f"{name}: not compared, there are too few finite values")
    means = [statistics.fmean(curve) for curve in curves]
    deviation = statistics.fmean(statistics.variance(values) for values in zip(*curves, strict=True)) ** 0.5
    spread = max(max(means) - min(means), _spread_of_means(steady, num_steps))  # a script that draws nothing: rounding
    allowed = MEAN_FACTOR * max(spread, deviation / math.sqrt(num_steps))
    mean, middle = statistics.fmean(ours[:num_steps]), statistics.fmean(means)
    text = (
        f"{name}: {mean:.5g} over {num_steps} steps, {middle:.5g} in {len(draws)} runs that draw other numbers; "
        f"they differ by {abs(mean - middle):.2g}, allowed {allowed:.2g}"
    )
    return Observation(text, abs(mean - middle) > allowed)


def _spread_of_means(curves: Sequence[Curve], num_steps: int) -> float:
    means = [statistics.fmean(curve[:num_steps]) for curve in curves if len(curve) >= num_steps]
    finite = [mean for mean in means if math.isfinite(mean)]
    return max(finite, default=0.0) - min(finite, default=0.0)


def _loss_per_step(evidence: Evidence) -> Curve:
    return [sum(losses) for losses in evidence.losses]


def _losses(evidence: Evidence, index: int) -> Curve:
    return [losses[index] if index < len(losses) else math.nan for losses in evidence.losses]


def _compare(
    name: str, ours: Curve, theirs: Curve, runs: Sequence[Curve], envelope: Envelope, floor: float | None = None
) -> tuple[float, Observation]:
    relative = envelope.loss_floor if floor is None else floor
    noise = _running_maximum(theirs, runs)
    allowed = [
        envelope.each_factor * at_step + relative * abs(value) for value, at_step in zip(theirs, noise, strict=True)
    ]
    return _observe(name, ours, theirs, allowed, envelope.name)


def _running_maximum(theirs: Curve, runs: Sequence[Curve]) -> list[float]:
    """For each step the largest difference between a run and the baseline from a few steps before it to a few after."""
    largest = [
        max((_gap(run[step], value) for run in runs if step < len(run)), default=0.0)
        for step, value in enumerate(theirs)
    ]
    return [max(largest[max(0, step - LOOK_BACK_STEPS) : step + 1 + LOOK_AHEAD_STEPS]) for step in range(len(largest))]


def _gap(a: float, b: float) -> float:
    gap = abs(a - b)
    return gap if math.isfinite(gap) else 0.0  # `check_finite` speaks about those


def _observe(name: str, ours: Curve, theirs: Curve, allowed: Curve, rule: str) -> tuple[float, Observation]:
    gaps = [_gap(a, b) for a, b in zip(ours, theirs, strict=False)]
    if not gaps:
        return 0.0, Observation(f"{name}: none recorded")
    excess = [_ratio(gap, limit) for gap, limit in zip(gaps, allowed, strict=False)]
    worst = max(range(len(gaps)), key=excess.__getitem__)
    step = next((step for step, ratio in enumerate(excess) if ratio > 1), worst)  # where it began says most
    more = f"; by {gaps[worst]:.2g} at step {worst + 1}" if worst != step else ""
    text = (
        f"{name}: {ours[step]:.7g} at step {step + 1}, in the baseline {theirs[step]:.7g}; "
        f"they differ by {gaps[step]:.2g}, allowed {allowed[step]:.2g} ({rule}){more}"
    )
    return excess[worst], Observation(text, excess[worst] > 1)


def _ratio(gap: float, limit: float) -> float:
    return 0.0 if gap == 0 else gap / limit if limit else math.inf


def _worst(found: Sequence[tuple[float, Observation]], otherwise: str, broken: bool = False) -> Observation:
    return max(found, key=lambda pair: pair[0])[1] if found else Observation(otherwise, broken)
