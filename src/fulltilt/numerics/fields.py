"""Many named tensors (all first gradients, all updates) of one run against those of another."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from fulltilt.numerics.distance import distance, inner_product, is_finite, root_sum_square, size
from fulltilt.numerics.envelope import Envelope, Observation
from fulltilt.numerics.thresholds import SCALE_CEILING
from fulltilt.records.record import Evidence, TensorSketch

Field = Mapping[str, TensorSketch]
Read = Callable[[Evidence], Field]


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparison:
    """A candidate's field beside the baseline's and those of the envelope, over the names that can be compared."""

    name: str
    candidate: Field
    baseline: Field
    runs: Sequence[Field]
    envelope: Envelope
    floors: Mapping[str, float]
    """Absolute, for each name."""

    @property
    def names(self) -> list[str]:
        """In the baseline and the candidate, and finite in both (`check_finite` speaks about the others)."""
        return [
            name
            for name, sketch in self.baseline.items()
            if name in self.candidate and is_finite(sketch) and is_finite(self.candidate[name])
        ]


def compare(
    name: str, read: Read, candidate: Evidence, baseline: Evidence, envelope: Envelope, floors: Mapping[str, float]
) -> Comparison:
    """The comparison of what `read` takes from each evidence; names without a floor are left out."""
    theirs = {key: sketch for key, sketch in read(baseline).items() if key in floors}
    runs = [read(run) for run in envelope.runs]
    return Comparison(
        name=name, candidate=read(candidate), baseline=theirs, runs=runs, envelope=envelope, floors=floors
    )


def check_each(comparison: Comparison) -> Observation:
    """The tensor that is furthest beyond what its envelope allows, in distance, length and direction.

    Allowed is a factor times the largest of: the distance of an envelope run for this tensor; the relative distance of
    all tensors together, times the norm of this one; its share, by number of elements, of that distance. The last two
    keep one lucky or nearly empty tensor from tripping.
    """
    names = comparison.names
    if not names:
        return Observation(f"{comparison.name}: none to compare")
    allowed = _allowed_each(comparison, names)
    gaps = {name: distance(comparison.candidate[name], comparison.baseline[name]) for name in names}
    worst = max(names, key=lambda name: _ratio(gaps[name], allowed[name]))
    ours, theirs = comparison.candidate[worst], comparison.baseline[worst]
    text = (
        f"{comparison.name}, each: {worst} is furthest, by {_relative(gaps[worst], size(theirs))} of its norm, allowed "
        f"{_relative(allowed[worst], size(theirs))} ({comparison.envelope.name}); {_length_and_direction(ours, theirs)}"
    )
    return Observation(text, gaps[worst] > allowed[worst])


def check_moved(name: str, read: Read, candidate: Evidence, baseline: Evidence, envelope: Envelope) -> Observation:
    """The same tensors stand still: one that does is lost, however small its changes would be."""
    field, ours = read(baseline), read(candidate)
    runs = [read(run) for run in envelope.runs]
    common = [key for key in field if key in ours]
    stuck = [n for n in common if size(field[n]) and not size(ours[n]) and all(size(r[n]) for r in runs if n in r)]
    loose = [n for n in common if not size(field[n]) and size(ours[n]) and not any(size(r[n]) for r in runs if n in r)]
    if stuck:
        return Observation(f"moved {name}: {stuck[0]} does not move, in the baseline it does{_more(stuck)}", True)
    if loose:
        return Observation(f"moved {name}: {loose[0]} moves, in the baseline it does not{_more(loose)}", True)
    moved = sum(1 for sketch in field.values() if size(sketch))
    return Observation(f"moved {name}: the same {moved} as in the baseline")


def check_total(comparison: Comparison) -> Observation:
    """All tensors together, with a stricter factor."""
    names = comparison.names
    total = root_sum_square(size(comparison.baseline[name]) for name in names)
    floor = root_sum_square(comparison.floors[name] for name in names)
    allowed = comparison.envelope.total_factor * _largest_total(comparison, names) + floor
    gaps = {name: distance(comparison.candidate[name], comparison.baseline[name]) for name in names}
    gap = root_sum_square(gaps.values())
    most = f", most of it in {max(names, key=gaps.__getitem__)}" if gap else ""
    text = (
        f"{comparison.name}, all: they differ by {_relative(gap, total)} of their norm, allowed "
        f"{_relative(allowed, total)} ({comparison.envelope.name}){most}"
    )
    return Observation(text, gap > allowed)


def check_scale(comparison: Comparison) -> Observation:
    """The length of all tensors along the baseline's: an error of scale is seen through noise that hides a distance."""
    names = comparison.names
    scale = _scale(comparison.candidate, comparison.baseline, names)
    off = abs(scale - 1)
    offs = [abs(_scale(run, comparison.baseline, _common(run, names)) - 1) for run in comparison.runs]
    total = root_sum_square(size(comparison.baseline[name]) for name in names)
    spread = _largest_total(comparison, names) / total if total else 0.0
    noise = max((value for value in offs if math.isfinite(value)), default=0.0)
    # To second order a turned vector is shorter along its old direction by half the square of the turn.
    wide = comparison.envelope.factor * max(noise, spread / 4, spread**2 / 2)
    floor = root_sum_square(comparison.floors[name] for name in names) / total if total else 0.0
    is_rounding = len(comparison.envelope.runs) == len(comparison.envelope.steady_runs)
    allowed = (min(wide, max(SCALE_CEILING, 2 * noise)) if is_rounding else wide) + floor
    text = (
        f"{comparison.name}, scale: along the baseline's they are {scale:.5g} times as long, "
        f"allowed 1 +- {allowed:.2g} ({comparison.envelope.name})"
    )
    return Observation(text, off > allowed)


def largest_distance(name: str, baseline: Field, runs: Sequence[Field]) -> float:
    """The largest finite distance of the tensor `name` in the runs from that of the baseline."""
    gaps = [distance(run[name], baseline[name]) for run in runs if name in run]
    return max((gap for gap in gaps if math.isfinite(gap)), default=0.0)


def _more(names: Sequence[str]) -> str:
    return f" (and {len(names) - 1} more)" if len(names) > 1 else ""


def _allowed_each(comparison: Comparison, names: Collection[str]) -> dict[str, float]:
    baseline = comparison.baseline
    total = root_sum_square(size(baseline[name]) for name in names)
    spread = _largest_total(comparison, names)
    numel = sum(baseline[name].numel for name in names)
    return {
        name: comparison.envelope.each_factor
        * max(
            largest_distance(name, baseline, comparison.runs),
            spread / total * size(baseline[name]) if total else 0.0,
            spread * math.sqrt(baseline[name].numel / numel) if numel else 0.0,
        )
        + comparison.floors[name]
        for name in names
    }


def _largest_total(comparison: Comparison, names: Collection[str]) -> float:
    def total(run: Field) -> float:
        return root_sum_square(distance(run[name], comparison.baseline[name]) for name in _common(run, names))

    return max((gap for gap in map(total, comparison.runs) if math.isfinite(gap)), default=0.0)


def _common(run: Field, names: Collection[str]) -> list[str]:
    return [name for name in names if name in run and is_finite(run[name])]


def _scale(field: Field, baseline: Field, names: Collection[str]) -> float:
    along = math.fsum(inner_product(field[name], baseline[name]) for name in names)
    whole = math.fsum(inner_product(baseline[name], baseline[name]) for name in names)
    return along / whole if whole else 1.0


def _length_and_direction(ours: TensorSketch, theirs: TensorSketch) -> str:
    if not size(ours) or not size(theirs):
        return f"norm {size(ours):.2g}, in the baseline {size(theirs):.2g}"
    cosine = inner_product(ours, theirs) / size(ours) / size(theirs)
    return f"length {size(ours) / size(theirs):.4g} times the baseline's, cosine {cosine:.4g}"


def _relative(gap: float, whole: float) -> str:
    return f"{gap / whole:.2g}" if whole else f"{gap:.2g} (of zero)" if gap else "0"


def _ratio(gap: float, limit: float) -> float:
    return 0.0 if gap == 0 else gap / limit if limit else math.inf
