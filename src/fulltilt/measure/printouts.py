"""Finds the numbers that a command prints of its training: "epoch 3 val loss 1.234 acc 0.87" is two series of values.

Lines that are equal but for their numbers belong together; a number is named by the words in front of it. Only numbers
whose name is that of a measure of learning are judged. Times and speeds change under a recipe, as they are meant to;
numbers without a name could be anything.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum

from fulltilt.records.long_run import PrintedSeries

_MOST_SERIES = 400
_MOST_VALUES = 20_000
_MOST_CHARACTERS = 2000
"""Of a line: a longer one is a dump."""

_ANSI = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]")
_NUMBER = re.compile(
    r"(?<![\w.@])(?P<number>[-+]?(?:\d+(?:,\d{3})+(?:\.\d+)?|\d+\.?\d*(?:e[-+]?\d+)?|\.\d+(?:e[-+]?\d+)?|(?:nan|inf)(?!\w)))"
    r"(?P<unit>(?:[a-z]+/[a-z]+|[a-z]+|%|\s(?:[a-z]+/[a-z]+|s|sec|secs|seconds|ms|us|min|h|[kmg]i?b)\b)?(?!\w))",
    re.IGNORECASE,
)
_WORD = re.compile(r"[A-Za-z]+\d*|\d+")


def _vocabulary(text: str) -> frozenset[str]:
    return frozenset(text.split())


_MEASURES = _vocabulary("""
    loss losses acc accuracy accuracies error err ppl perplexity bleu rouge f1 auc auroc auprc map miou iou dice
    psnr ssim lpips fid kid reward rewards return returns score mse mae rmse rmsle mape r2 nll elbo bpc bpb bpd kl
    ce bce wer cer recall precision top1 top5 ndcg mrr hit exact em correlation spearman pearson mcc kappa logloss
    likelihood
""")
_PARTS = _vocabulary("train training val valid validation test testing eval evaluation dev best final mean avg average")
"""Which data, or which of several: with nothing else beside it, "val 1.23" is a measure too."""

_CLOCKS = _vocabulary("""
    time times timing sec secs second seconds s ms us ns min mins minute minutes hour hours h eta elapsed remaining took
    duration runtime speed throughput latency it its fps tps sps qps tok tokens samples examples images imgs iters steps
    mfu flops tflops gflops mem memory vram ram rss allocated reserved peak gb mb kb gib mib kib bytes gpu cpu util
    utilization watts power clock date wall pid port rank worker workers thread threads device
    lr rate epoch epochs step iter iteration iterations batch batches params parameters size seed fold of
""")
"""Also counters and settings: they count along, and say nothing of what is learnt."""
_RATES_OF_LEARNING = re.compile(r"\b(error|hit|success|win) rate\b")


class Kind(Enum):
    """What a printed number is, by its name."""

    MEASURE = "a measure of learning"
    CLOCK = "a time, a speed, an amount or a counter"
    NAMELESS = "its name is not that of a known measure"


@dataclass
class _Series:
    label: str
    values: list[float] = field(default_factory=list)
    resolution: float = 0.0


def kind_of(label: str, unit: str = "") -> Kind:
    """Is a number with this name, and this unit behind it, one that can be judged?"""
    words = {word.lower() for word in _words(label)}
    if unit.strip() not in ("", "%") and {word.lower() for word in _words(unit)} & _CLOCKS:
        return Kind.CLOCK
    if words & _CLOCKS and not _RATES_OF_LEARNING.search(" ".join(_words(label)).lower()):
        return Kind.CLOCK
    return Kind.MEASURE if words & _MEASURES or (words and words <= _PARTS) else Kind.NAMELESS


def printed_series(lines: Iterable[str]) -> tuple[PrintedSeries, ...]:
    """The measures that these lines tell, each with all its values in order; times, counters and the rest left out."""
    found: dict[tuple[str, int], _Series] = {}
    for line in lines:
        _take_in(_as_shown(line), found)
    return tuple(
        PrintedSeries(label=series.label, line=line, values=tuple(series.values), resolution=series.resolution)
        for (line, _), series in found.items()
    )


def names_left_out(lines: Iterable[str]) -> tuple[str, ...]:
    """Names of printed numbers that are not judged, with the reason, each once; counters and times not among them."""
    names: dict[str, None] = {}
    for line in lines:
        shown = _as_shown(line)
        for match, label in _numbers_of(shown):
            if kind_of(label, match["unit"]) is Kind.NAMELESS and label and len(names) < _MOST_SERIES:
                names.setdefault(label)
    return tuple(names)


def _take_in(line: str, found: dict[tuple[str, int], _Series]) -> None:
    numbers = [(match, label) for match, label in _numbers_of(line) if kind_of(label, match["unit"]) is Kind.MEASURE]
    if not numbers:
        return
    template = " ".join(_NUMBER.sub(lambda match: "#" + match["unit"], line).split())
    for position, (match, label) in enumerate(numbers):
        key = (template, position)
        if key not in found and len(found) >= _MOST_SERIES:
            return
        series = found.setdefault(key, _Series(label))
        if len(series.values) < _MOST_VALUES:
            text = match["number"].replace(",", "")
            series.values.append(float(text))
            series.resolution = max(series.resolution, _last_digit(text))


def _numbers_of(line: str) -> list[tuple[re.Match[str], str]]:
    """The numbers of a line, each with the words between the number before it and itself."""
    found, end = [], 0
    for match in _NUMBER.finditer(line):
        found.append((match, " ".join(_words(line[end : match.start()])[-3:])))
        end = match.end()
    return found


def _words(text: str) -> list[str]:
    """Words, at underscores and between lower and upper case too: "val_loss" and "valLoss" are "val loss"."""
    return _WORD.findall(re.sub(r"(?<=[a-z])(?=[A-Z])", " ", text.replace("_", " ")))


def _as_shown(line: str) -> str:
    """What stays on a terminal: without colours, and what a progress bar has written over."""
    shown = _ANSI.sub("", line.rstrip("\r\n")).rpartition("\r")[2]
    return "" if len(shown) > _MOST_CHARACTERS or shown.startswith("fulltilt:") else shown


def _last_digit(number: str) -> float:
    """One unit of the last digit that is written: 0.001 for "1.234", 1e-5 for "1.2e-4"."""
    mantissa, _, exponent = number.lower().partition("e")
    if not math.isfinite(float(number)):
        return 0.0
    decimals = len(mantissa.partition(".")[2])
    return float(10.0 ** (int(exponent or 0) - decimals))
