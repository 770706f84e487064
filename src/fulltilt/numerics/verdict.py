"""Are the numbers still right? A candidate's evidence against the baseline's, by the class of its techniques.

docs/verdict.md says what is recorded and why each threshold is what it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from fulltilt.numerics.buffers import check_buffers
from fulltilt.numerics.curves import check_gradient_norms, check_losses, check_losses_of_lossy, check_means
from fulltilt.numerics.data import check_data, check_input_values
from fulltilt.numerics.distance import distance, root_sum_square, size
from fulltilt.numerics.envelope import Envelope, Observation, envelope_of, rounding_unit
from fulltilt.numerics.finiteness import check_finite
from fulltilt.numerics.keeping import check_generators, check_held
from fulltilt.numerics.parameters import check_gradients, check_starts, check_updates, updates
from fulltilt.numerics.structure import check_structure
from fulltilt.numerics.thresholds import NOISY_REPEAT
from fulltilt.records.journal import VerdictRecord
from fulltilt.records.record import Evidence
from fulltilt.records.words import Numerics

_FROM_NARROW_TO_WIDE = (Numerics.EXACT, Numerics.ROUNDING, Numerics.LOSSY)


def judge(
    candidate: Evidence,
    baseline: Evidence,
    *,
    numerics: Numerics,
    repeat: Sequence[Evidence],
    rounding: Sequence[Evidence] = (),
    sampling: Sequence[Evidence] = (),
    changes_draws: bool = False,
) -> VerdictRecord:
    """The verdict on `candidate`: kept unless one kind of evidence speaks against it.

    `repeat` are runs of the untouched command with the baseline's seed; `rounding` the same with weights perturbed at
    the rounding of the technique's precision; `sampling` the same with other random numbers from the first training
    step on, which count when the technique `changes_draws`.

    Raises:
        ValueError: when the runs are missing that the class needs: `repeat` always, `rounding` for ROUNDING, `sampling`
            for a technique that changes draws and is not LOSSY.
    """
    noise = _noise_of_repeat(baseline, repeat)
    envelope = envelope_of(
        numerics,
        repeat=repeat,
        rounding=rounding,
        sampling=sampling,
        changes_draws=changes_draws,
        noisy=noise > NOISY_REPEAT,
        rounding_unit=rounding_unit(baseline),
    )
    observations = [
        *check_structure(candidate, baseline, repeat, numerics),
        check_finite(candidate, baseline),
        check_starts(candidate, baseline, repeat),
        *check_data(candidate, baseline, envelope),
        *_check_numbers(candidate, baseline, envelope, numerics),
        *check_generators(candidate, baseline, envelope),
        _check_draws(candidate, baseline, repeat, changes_draws or numerics is Numerics.LOSSY),
        _describe_repeat(noise),
    ]
    return VerdictRecord(
        numerics=numerics,
        kept=not any(observation.broken for observation in observations),
        evidence=tuple(observation.text for observation in observations),
        broken=tuple(observation.text for observation in observations if observation.broken),
    )


def class_of(classes: Iterable[Numerics]) -> Numerics:
    """The widest of the classes of several techniques; EXACT for none."""
    return max(classes, key=_FROM_NARROW_TO_WIDE.index, default=Numerics.EXACT)


def _check_numbers(
    candidate: Evidence, baseline: Evidence, envelope: Envelope, numerics: Numerics
) -> Iterator[Observation]:
    if numerics is Numerics.LOSSY:
        yield check_losses_of_lossy(candidate, baseline, envelope)
        return
    yield check_input_values(candidate, baseline, envelope)
    yield check_losses(candidate, baseline, envelope)
    yield check_gradient_norms(candidate, baseline, envelope)
    if len(envelope.runs) > len(envelope.steady_runs):
        yield from check_means(candidate, baseline, envelope)
    yield from check_gradients(candidate, baseline, envelope)
    yield from check_updates(candidate, baseline, envelope)
    yield from check_buffers(candidate, baseline, envelope)
    yield from check_held(candidate, baseline, envelope)


def _check_draws(candidate: Evidence, baseline: Evidence, repeat: Sequence[Evidence], may_differ: bool) -> Observation:
    if any(run.draws != baseline.draws for run in repeat):
        return Observation("draws: cannot be judged, two runs of the same command draw different random numbers")
    if candidate.draws == baseline.draws:
        return Observation("draws: the random generators end as the baseline's do")
    if may_differ:
        return Observation("draws: it draws other random numbers, which this technique may")
    return Observation("draws: it draws other random numbers than the baseline", True)


def _noise_of_repeat(baseline: Evidence, repeat: Sequence[Evidence]) -> float:
    """The largest relative distance between the updates of two runs of the untouched command."""
    field = updates(baseline)
    total = root_sum_square(map(size, field.values()))
    gaps = [
        root_sum_square(distance(theirs, field[name]) for name, theirs in updates(run).items() if name in field)
        for run in repeat
    ]
    return max(gaps, default=0.0) / total if total else 0.0


def _describe_repeat(noise: float) -> Observation:
    if noise == 0:
        return Observation("noise: two runs of the same command give the same updates, bit for bit")
    if noise <= NOISY_REPEAT:
        return Observation(f"noise: updates of two runs of the same command differ by {noise:.2g} of their norm")
    return Observation(
        f"noise: the command does not repeat itself, updates of two runs differ by {noise:.2g} of their norm "
        "(no fixed seed, or operations that are not deterministic); smaller changes than that cannot be seen"
    )
