"""Parameters: where they start, their first gradients, how they move."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fulltilt.numerics.distance import change, distance, is_finite, root_sum_square, size
from fulltilt.numerics.envelope import Envelope, Observation
from fulltilt.numerics.fields import (
    Comparison,
    Field,
    check_each,
    check_moved,
    check_scale,
    check_total,
    compare,
    largest_distance,
)
from fulltilt.numerics.thresholds import EXACT_FLOOR, UNDETERMINED_RELATIVE, UNDETERMINED_SHARE
from fulltilt.records.record import Evidence


def gradients(evidence: Evidence) -> Field:
    """First gradients by parameter."""
    return {name: p.first_gradient for name, p in evidence.parameters.items() if p.first_gradient is not None}


def updates(evidence: Evidence) -> Field:
    """end - start by parameter, in sketches."""
    return {name: change(p.start, p.end) for name, p in evidence.parameters.items() if p.end is not None}


def check_starts(candidate: Evidence, baseline: Evidence, repeat: Sequence[Evidence]) -> Observation:
    """The same weights before the first step, as far as two runs of the command start equal themselves."""
    unsteady = [name for run in repeat for name in _other_starts(run, baseline)]
    if unsteady:
        return Observation(
            f"initial weights: cannot be judged, {unsteady[0]} starts differently in two runs of the same command"
        )
    other = _other_starts(candidate, baseline)
    if other:
        more = f" (and {len(other) - 1} more)" if len(other) > 1 else ""
        return Observation(f"initial weights: {other[0]} starts from other values than in the baseline{more}", True)
    return Observation("initial weights: the same as in the baseline")


def check_gradients(candidate: Evidence, baseline: Evidence, envelope: Envelope) -> Iterator[Observation]:
    """First gradients: each, all together, their scale, and those that are nothing but rounding."""
    left_out = undetermined(baseline, envelope)
    total = root_sum_square(size(sketch) for sketch in gradients(baseline).values() if is_finite(sketch))
    floors = {name: envelope.floor * total for name in gradients(baseline) if name not in left_out}
    comparison = compare("first gradients", gradients, candidate, baseline, envelope, floors)
    yield from (check_each(comparison), check_total(comparison), check_scale(comparison))
    if left_out:
        yield _check_undetermined_gradients(candidate, baseline, envelope, left_out, comparison)


def check_updates(candidate: Evidence, baseline: Evidence, envelope: Envelope) -> Iterator[Observation]:
    """Updates over the recorded steps: who moves, each, all together, their scale."""
    yield check_moved("parameters", updates, candidate, baseline, envelope)
    left_out = undetermined(baseline, envelope)
    floors = {
        name: envelope.update_floor * known.end.norm + envelope.floor * size(change(known.start, known.end))
        for name, known in baseline.parameters.items()
        if known.end is not None and is_finite(known.end) and name not in left_out
    }
    comparison = compare("updates", updates, candidate, baseline, envelope, floors)
    yield from (check_each(comparison), check_total(comparison), check_scale(comparison))
    if left_out:
        yield _check_undetermined_updates(candidate, baseline, envelope, left_out, comparison)


def undetermined(baseline: Evidence, envelope: Envelope) -> list[str]:
    """Parameters whose true gradient is zero, so that what they get is rounding noise."""
    field = {name: sketch for name, sketch in gradients(baseline).items() if is_finite(sketch)}
    runs = [gradients(run) for run in envelope.steady_runs]
    total = root_sum_square(map(size, field.values()))
    return [
        name
        for name, sketch in field.items()
        if 0 < size(sketch) <= UNDETERMINED_SHARE * total
        and largest_distance(name, field, runs) >= UNDETERMINED_RELATIVE * size(sketch)
    ]


def _other_starts(evidence: Evidence, baseline: Evidence) -> list[str]:
    return [
        name
        for name, known in baseline.parameters.items()
        if name in evidence.parameters
        and is_finite(known.start)
        and not distance(evidence.parameters[name].start, known.start) <= EXACT_FLOOR * known.start.norm
    ]


def _check_undetermined_gradients(
    candidate: Evidence, baseline: Evidence, envelope: Envelope, names: Sequence[str], others: Comparison
) -> Observation:
    """They may be as large as the noise of all other gradients together."""
    field, ours = gradients(baseline), gradients(candidate)
    noise = envelope.largest(
        lambda run: root_sum_square(
            distance(theirs, field[name]) for name, theirs in gradients(run).items() if name in others.baseline
        )
    )
    total = root_sum_square(size(sketch) for sketch in others.baseline.values() if is_finite(sketch))
    allowed = envelope.factor * noise + envelope.floor * total
    return _largest_undetermined("first gradients", ours, names, dict.fromkeys(names, allowed))


def _check_undetermined_updates(
    candidate: Evidence, baseline: Evidence, envelope: Envelope, names: Sequence[str], others: Comparison
) -> Observation:
    """They may move as far, by element, as the parameter that moves furthest."""
    moved = {name: sketch for name, sketch in updates(baseline).items() if is_finite(sketch)}
    fastest = max((size(sketch) / max(1, sketch.numel) ** 0.5 for sketch in moved.values()), default=0.0)
    allowed = {
        name: envelope.factor * fastest * moved[name].numel ** 0.5
        + envelope.update_floor * baseline.parameters[name].start.norm
        for name in names
        if name in moved
    }
    return _largest_undetermined("updates", updates(candidate), names, allowed)


def _largest_undetermined(name: str, ours: Field, names: Sequence[str], allowed: dict[str, float]) -> Observation:
    known = [key for key in names if key in ours and key in allowed and is_finite(ours[key])]
    if not known:
        return Observation(f"{name}, rounding noise: none to compare")
    worst = max(known, key=lambda key: size(ours[key]) / (allowed[key] or 1.0))
    text = (
        f"{name}, rounding noise: {len(names)} parameters have a true gradient of zero; the largest is {worst} "
        f"with norm {size(ours[worst]):.2g}, allowed {allowed[worst]:.2g}"
    )
    return Observation(text, size(ours[worst]) > allowed[worst])
