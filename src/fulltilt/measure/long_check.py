"""From pairs of long runs to a judgement: each part of a loss curve and each evaluation is tested, then all together.

Every decisive number must be shown equivalent, so that no correction is needed for that (an intersection-union test:
Berger, Technometrics 24 (1982)). One number that differs is enough for a difference: those tests are corrected (Holm).
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import statistics
from collections.abc import Iterator, Sequence

from fulltilt.measure.equivalence import LEAST_PAIRS, compare_means, is_equivalent
from fulltilt.measure.holm import holm
from fulltilt.measure.run_failures import GOOD_ENDS, Pair, failures
from fulltilt.records.long_run import Equivalence, Judgement, PrintedSeries, RunRecord, SeriesResult

NUM_WINDOWS = 5
"""The last fifth is what training has come to; the others show where a difference begins."""
_LEAST_STEPS = 2 * NUM_WINDOWS


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Verdict:
    """What all the runs say."""

    judgement: Judgement
    summary: str
    series: tuple[SeriesResult, ...]
    failures: tuple[str, ...]
    not_judged: tuple[str, ...]


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class _Question:
    """One number for each run: what is compared."""

    name: str
    source: str
    decisive: bool
    a: tuple[float, ...]
    b: tuple[float, ...]
    scale: float
    resolution: float = 0.0


def judge_runs(pairs: Sequence[Pair], *, margin: float | None = None) -> Verdict:
    """The judgement on B, the runs under a recipe.

    Args:
        pairs: runs of A and of B with the same seed; those of A have ended well.
        margin: relative to each number; by default `equivalence.natural_margin`.
    """
    wrong = failures(pairs)
    whole = [pair for pair in pairs if all(run.outcome in GOOD_ENDS and run.curve is not None for run in pair)]
    questions = [*_loss_questions(whole), *_evaluation_questions(whole), *_output_questions(whole)]
    series = _with_differences([_answer(question, margin) for question in questions])
    judgement = _overall(series, wrong)
    return Verdict(
        judgement=judgement,
        summary=_summary(judgement, series, wrong, len(whole)),
        series=tuple(series),
        failures=wrong,
        not_judged=_not_judged(whole),
    )


def _loss_questions(pairs: Sequence[Pair]) -> Iterator[_Question]:
    names = list(dict.fromkeys(name for a, _ in pairs for name in _losses(a)))
    for name in names:
        a = [_losses(run).get(name, ()) for run, _ in pairs]
        b = [_losses(run).get(name, ()) for _, run in pairs]
        length = min(map(len, (*a, *b)))
        kept = [i for i in range(length) if all(math.isfinite(curve[i]) for curve in (*a, *b))]
        stride = pairs[0][0].curve.stride if pairs[0][0].curve is not None else 1
        whose = f"loss of {name}" if len(names) > 1 else "loss"
        for words, decisive, start, end in _windows(length, stride):
            indices = [i for i in kept if start <= i < end]
            if indices:
                yield _question(f"{whose}, {words}", "loss", decisive, _take(a, indices), _take(b, indices))
    yield from _length_question(pairs)


def _windows(length: int, stride: int) -> Iterator[tuple[str, bool, int, int]]:
    """The last fifth first, then the whole, then the other fifths."""
    if length >= _LEAST_STEPS:
        edges = [round(length * number / NUM_WINDOWS) for number in range(NUM_WINDOWS + 1)]
        fifths = [
            (f"steps {start * stride + 1} to {end * stride}", start, end) for start, end in itertools.pairwise(edges)
        ]
        words, start, end = fifths[-1]
        yield f"last fifth ({words})", True, start, end
        yield "all steps", True, 0, length
        yield from ((words, False, start, end) for words, start, end in fifths[:-1])
    elif length:
        yield "all steps", True, 0, length


def _length_question(pairs: Sequence[Pair]) -> Iterator[_Question]:
    """A run that stops by a rule of its own (early stopping) takes another number of steps with every seed."""
    a = [run.curve.num_steps for run, _ in pairs if run.curve is not None]
    b = [run.curve.num_steps for _, run in pairs if run.curve is not None]
    if len(set(a)) > 1:
        yield _question(
            "steps until it stops", "loss", True, [[float(n)] for n in a], [[float(n)] for n in b], resolution=1.0
        )


def _evaluation_questions(pairs: Sequence[Pair]) -> Iterator[_Question]:
    for name in dict.fromkeys(name for a, _ in pairs for name in _evaluations(a)):
        a = [_evaluations(run).get(name, ()) for run, _ in pairs]
        b = [_evaluations(run).get(name, ()) for _, run in pairs]
        if all((*a, *b)):
            yield _question(f"{name} without gradients, {_last_words(a)}", "evaluation", True, _lasts(a), _lasts(b))


def _output_questions(pairs: Sequence[Pair]) -> Iterator[_Question]:
    for name, a, b in _common_output(pairs):
        yield _question(
            f'printed "{name}", {_last_words([series.values for series in a])}',
            "output",
            True,
            _lasts([series.values for series in a]),
            _lasts([series.values for series in b]),
            resolution=max(series.resolution for series in (*a, *b)),
        )


def _common_output(pairs: Sequence[Pair]) -> Iterator[tuple[str, list[PrintedSeries], list[PrintedSeries]]]:
    """The numbers that every run has printed; named by their label, with their line where that is not unique."""
    of_a, of_b = [_by_place(a) for a, _ in pairs], [_by_place(b) for _, b in pairs]
    places = [place for place in (of_a[0] if of_a else ()) if all(place in known for known in (*of_a, *of_b))]
    labels = [of_a[0][place].label for place in places]
    for place, label in zip(places, labels, strict=True):
        name = label if labels.count(label) == 1 else f"{label} in {place[0][:60]}"
        yield name, [known[place] for known in of_a], [known[place] for known in of_b]


def _by_place(run: RunRecord) -> dict[tuple[str, int], PrintedSeries]:
    """By the line that it stands in, and its position among the judged numbers of that line."""
    counts: dict[str, int] = {}
    found = {}
    for series in run.printed:
        counts[series.line] = counts.get(series.line, 0) + 1
        found[series.line, counts[series.line]] = series
    return found


def _question(
    name: str,
    source: str,
    decisive: bool,
    a: Sequence[Sequence[float]],
    b: Sequence[Sequence[float]],
    *,
    resolution: float = 0.0,
) -> _Question:
    return _Question(
        name=name,
        source=source,
        decisive=decisive,
        a=tuple(map(statistics.fmean, a)),
        b=tuple(map(statistics.fmean, b)),
        scale=statistics.fmean(abs(value) for values in a for value in values),
        resolution=resolution,
    )


def _answer(question: _Question, margin: float | None) -> SeriesResult:
    result = SeriesResult(
        name=question.name,
        source=question.source,
        decisive=question.decisive,
        judgement=Judgement.UNDECIDED,
        reason="",
    )
    if not all(map(math.isfinite, question.a)):
        return dataclasses.replace(result, reason="it is not finite in a run of the command as it is")
    if not all(map(math.isfinite, question.b)):
        reason = "it is not finite under the recipe, and is without it"
        return dataclasses.replace(result, judgement=Judgement.DIFFERENT, reason=reason)
    if len(question.a) < LEAST_PAIRS:
        return dataclasses.replace(result, reason="one run says nothing of how far seeds differ")
    found = compare_means(
        question.a, question.b, scale=question.scale, margin_relative=margin, resolution=question.resolution
    )
    judgement = Judgement.EQUIVALENT if is_equivalent(found) else Judgement.UNDECIDED
    return dataclasses.replace(result, judgement=judgement, reason=_reason(judgement, found), equivalence=found)


def _with_differences(series: Sequence[SeriesResult]) -> list[SeriesResult]:
    """Those not shown equivalent are different where that is beyond chance, all of the tests together."""
    p_values = {result.name: result.equivalence.p_difference for result in series if result.equivalence is not None}
    significant = holm(p_values)
    return [
        dataclasses.replace(
            result, judgement=Judgement.DIFFERENT, reason=_reason(Judgement.DIFFERENT, result.equivalence)
        )
        if result.equivalence is not None and result.judgement is Judgement.UNDECIDED and significant[result.name]
        else result
        for result in series
    ]


def _overall(series: Sequence[SeriesResult], wrong: Sequence[str]) -> Judgement:
    if wrong or any(result.judgement is Judgement.DIFFERENT for result in series):
        return Judgement.DIFFERENT
    decisive = [result for result in series if result.decisive]
    if decisive and all(result.judgement is Judgement.EQUIVALENT for result in decisive):
        return Judgement.EQUIVALENT
    return Judgement.UNDECIDED


def difference_words(found: Equivalence) -> str:
    """ "+0.31 % [-0.20, +0.82]": relative to A's mean where that is a useful unit, as a number otherwise."""
    base = abs(found.mean_a)
    if base <= found.margin or base < 1e-12:
        return f"{found.difference:+.3g} [{found.low:+.3g}, {found.high:+.3g}]"
    parts = [100 * value / base for value in (found.difference, found.low, found.high)]
    style = "+.2f" if max(map(abs, parts)) >= 0.02 else "+.1g"
    difference, low, high = (format(part, style) for part in parts)
    return f"{difference} % [{low}, {high}]"


def margin_words(found: Equivalence) -> str:
    """ "1.00 %", in the unit of `difference_words`."""
    base = abs(found.mean_a)
    return f"{found.margin:.3g}" if base <= found.margin or base < 1e-12 else f"{100 * found.margin / base:.2f} %"


def _reason(judgement: Judgement, found: Equivalence) -> str:
    said = f"differs by {difference_words(found)}, margin {margin_words(found)}"
    if judgement is Judgement.EQUIVALENT:
        return "every run is the same, to the last bit" if found.low == found.high == 0.0 else f"{said}: within it"
    if judgement is Judgement.DIFFERENT:
        return f"{said}: beyond chance, and not within it"
    needed = f"{found.num_pairs_needed} runs each would decide" if found.num_pairs_needed else "more steps might decide"
    return f"{said}: too wide to tell; if these runs are typical, {needed}"


def _summary(judgement: Judgement, series: Sequence[SeriesResult], wrong: Sequence[str], num_pairs: int) -> str:
    if wrong:
        more = f" ({len(wrong) - 1} more of the kind)" if len(wrong) > 1 else ""
        return f"{wrong[0][0].upper()}{wrong[0][1:]}{more}."
    if judgement is Judgement.DIFFERENT:
        worst = [result for result in series if result.judgement is Judgement.DIFFERENT]
        first = next((result for result in worst if result.decisive), worst[0])
        return f"{first.name}: {first.reason}; {len(worst)} of {len(series)} numbers differ."
    if judgement is Judgement.EQUIVALENT:
        decisive = [result for result in series if result.decisive]
        return f"{decisive[0].name}: {decisive[0].reason}; so are all {len(decisive)} numbers that decide."
    if num_pairs < LEAST_PAIRS:
        return f"{num_pairs} of at least {LEAST_PAIRS} pairs of runs are there; go on with the same --out."
    open_ones = [result for result in series if result.decisive and result.judgement is Judgement.UNDECIDED]
    if not open_ones:
        return "No loss of the command could be seen, so there is nothing to judge."
    worst_one = max(open_ones, key=_needs)
    return f"{len(open_ones)} of {len(series)} numbers could not be told. {worst_one.name}: {worst_one.reason}."


def _needs(result: SeriesResult) -> int:
    if result.equivalence is None or result.equivalence.num_pairs_needed is None:
        return 1 << 30
    return result.equivalence.num_pairs_needed


def _not_judged(pairs: Sequence[Pair]) -> tuple[str, ...]:
    names = dict.fromkeys(name for pair in pairs for run in pair for name in run.left_out)
    left_out = [f'"{name}": not the name of a known measure of learning' for name in names]
    common = {id(series) for _, a, _ in _common_output(pairs) for series in a}
    rare = dict.fromkeys(s.label for a, _ in pairs for s in a.printed if id(s) not in common)
    return tuple(left_out + [f'"{label}": not printed alike in every run' for label in rare])


def _losses(run: RunRecord) -> dict[str, tuple[float, ...]]:
    return run.curve.losses if run.curve is not None else {}


def _evaluations(run: RunRecord) -> dict[str, tuple[float, ...]]:
    found = run.curve.evaluations if run.curve is not None else {}
    return {name: tuple(point.mean for point in points) for name, points in found.items()}


def _take(curves: Sequence[Sequence[float]], indices: Sequence[int]) -> list[list[float]]:
    return [[curve[i] for i in indices] for curve in curves]


def _lasts(runs: Sequence[Sequence[float]]) -> list[Sequence[float]]:
    """The last fifth of the evaluations of each run, and at least the last one."""
    return [values[-max(1, len(values) // NUM_WINDOWS) :] for values in runs]


def _last_words(runs: Sequence[Sequence[float]]) -> str:
    counts = [max(1, len(values) // NUM_WINDOWS) for values in runs]
    return "the last one" if max(counts) == 1 else f"mean of the last {max(counts)}"
