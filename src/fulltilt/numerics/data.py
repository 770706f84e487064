"""What the script gave to its root modules, in which mode they were, and what its loaders say of themselves."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from fulltilt.numerics.distance import distance, is_finite
from fulltilt.numerics.envelope import Envelope, Observation
from fulltilt.numerics.thresholds import DISTINCT_ROWS_SHARE, FACTOR
from fulltilt.records.record import Evidence, InputEvidence

Step = Sequence[InputEvidence]


def check_data(candidate: Evidence, baseline: Evidence, envelope: Envelope) -> Iterator[Observation]:
    """Kinds of inputs, distinct rows, modes: what must be the same whatever the class."""
    if not any(baseline.inputs):
        yield Observation("inputs: none were recorded")
        return
    yield _check_kinds(candidate, baseline, envelope)
    yield _check_rows(candidate, baseline, envelope)
    yield _check_modes(candidate, baseline, envelope)


def check_input_values(candidate: Evidence, baseline: Evidence, envelope: Envelope) -> Observation:
    """Each input within a factor of the largest distance that a run has had for it up to this step."""
    noise: dict[str, float] = {}
    worst, furthest = 0.0, "equal to those of the baseline"
    for step, theirs in enumerate(baseline.inputs):
        ours = candidate.inputs[step] if step < len(candidate.inputs) else ()
        for index, (mine, known) in enumerate(zip(ours, theirs, strict=False)):
            if mine.kind != known.kind or not (is_finite(known.values) and is_finite(mine.values)):
                continue
            noise[known.name] = max(noise.get(known.name, 0.0), _largest_gap(envelope, step, index, known))
            allowed = FACTOR * noise[known.name] + envelope.floor * known.values.norm
            gap = distance(mine.values, known.values)
            text = (
                f"values of inputs: {known.name} at step {step + 1} is off by {gap:.2g} (norm "
                f"{known.values.norm:.3g}), allowed {allowed:.2g} ({envelope.name})"
            )
            if gap > allowed:
                return Observation(text, True)
            if gap and gap / allowed > worst:
                worst, furthest = gap / allowed, text.partition(": ")[2]
    return Observation(f"values of inputs: {furthest}")


def _check_kinds(candidate: Evidence, baseline: Evidence, envelope: Envelope) -> Observation:
    """The same number of tensors, of the same dtype and shape, in each step, unless the runs differ there too."""
    steady = [step for step, theirs in enumerate(baseline.inputs) if _alike(envelope.runs, step, theirs)]
    for step in steady:
        ours = candidate.inputs[step] if step < len(candidate.inputs) else ()
        fault = _fault_of_kinds(ours, baseline.inputs[step])
        if fault:
            return Observation(f"inputs: at step {step + 1} {fault}", True)
    loose = len(baseline.inputs) - len(steady)
    return Observation(
        "inputs: dtypes and shapes as in the baseline"
        + (f" in {len(steady)} steps; in {loose} they differ between runs of the command itself" if loose else "")
    )


def _alike(runs: Sequence[Evidence], step: int, theirs: Step) -> bool:
    return all(step >= len(run.inputs) or not _fault_of_kinds(run.inputs[step], theirs) for run in runs)


def _fault_of_kinds(ours: Step, theirs: Step) -> str:
    for mine, known in zip(ours, theirs, strict=False):
        if (mine.name, mine.kind) != (known.name, known.kind):
            return f"{mine.name} is {mine.kind}, in the baseline {known.name} is {known.kind}"
    if len(ours) != len(theirs):
        return f"root modules were given {len(ours)} tensors, in the baseline {len(theirs)}"
    return ""


def _largest_gap(envelope: Envelope, step: int, index: int, known: InputEvidence) -> float:
    gaps = [
        distance(run.inputs[step][index].values, known.values)
        for run in envelope.runs
        if step < len(run.inputs) and index < len(run.inputs[step]) and run.inputs[step][index].kind == known.kind
    ]
    return max((gap for gap in gaps if math.isfinite(gap)), default=0.0)


def _check_rows(candidate: Evidence, baseline: Evidence, envelope: Envelope) -> Observation:
    """Distances say nothing about data drawn anew; that samples come twice shows in the number of distinct ones."""
    for name, theirs in baseline.rows.items():
        ours = candidate.rows.get(name)
        if ours is None or ours.total != theirs.total:
            continue  # `_check_kinds` speaks of it
        counts = [theirs.distinct, *(run.rows[name].distinct for run in envelope.runs if name in run.rows)]
        least = min(counts) - FACTOR * (max(counts) - min(counts)) - DISTINCT_ROWS_SHARE * theirs.distinct
        if ours.distinct < least:
            return Observation(
                f"distinct samples: {ours.distinct} of {ours.total} rows of {name} are distinct, "
                f"in the baseline {theirs.distinct}",
                True,
            )
    return Observation("distinct samples: no fewer than in the baseline")


def _check_modes(candidate: Evidence, baseline: Evidence, envelope: Envelope) -> Observation:
    for step, theirs in enumerate(baseline.modes):
        ours = candidate.modes[step] if step < len(candidate.modes) else ""
        if ours != theirs and all(step >= len(run.modes) or run.modes[step] == theirs for run in envelope.runs):
            return Observation(
                f"modes: at step {step + 1} {ours or 'nothing'} is in evaluation mode, in the baseline "
                f"{theirs or 'nothing'}",
                True,
            )
    return Observation("modes: training and evaluation as in the baseline")
