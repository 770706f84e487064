"""Tensors and generators that the script holds besides its model: averages of weights, queues, augmentations."""

from __future__ import annotations

from collections.abc import Iterator

from fulltilt.numerics.distance import change, is_finite, size
from fulltilt.numerics.envelope import Envelope, Observation
from fulltilt.numerics.fields import Field, check_each, check_moved, compare
from fulltilt.records.record import Evidence


def held_changes(evidence: Evidence) -> Field:
    """What happened to each held tensor between the first and the last recorded step."""
    return {name: change(held.start, held.end) for name, held in evidence.held.items()}


def check_held(candidate: Evidence, baseline: Evidence, envelope: Envelope) -> Iterator[Observation]:
    """Who moves, and how far each is from the baseline's."""
    if not baseline.held:
        return
    yield check_moved("held tensors", held_changes, candidate, baseline, envelope)
    floors = {
        name: envelope.update_floor * held.end.norm + envelope.floor * size(change(held.start, held.end))
        for name, held in baseline.held.items()
        if is_finite(held.end)
    }
    yield check_each(compare("held tensors", held_changes, candidate, baseline, envelope, floors))


def check_generators(candidate: Evidence, baseline: Evidence, envelope: Envelope) -> Iterator[Observation]:
    """Private generators end where the baseline's do, unless they differ between runs of the command itself."""
    steady = [
        name
        for name, state in baseline.generators.items()
        if all(run.generators.get(name, state) == state for run in envelope.runs)
    ]
    for name in steady:
        if candidate.generators.get(name, baseline.generators[name]) != baseline.generators[name]:
            yield Observation(f"generators: {name} has drawn other random numbers than in the baseline", True)
            return
    if steady:
        yield Observation(f"generators: the {len(steady)} that the script holds end as the baseline's do")
