import dataclasses
from collections.abc import Callable

import pytest

from fulltilt.records.journal import ComparisonRecord
from fulltilt.records.request import TechniqueChoice
from fulltilt.report.comparisons import in_reading_order, outcome, purpose, title

P, F, C = (TechniqueChoice(name=name) for name in ("p", "f", "c"))


def test_the_confirmation_is_read_first_and_failures_have_no_chart(comparisons: list[ComparisonRecord]) -> None:
    purposes = [purpose(comparison) for comparison in in_reading_order(comparisons)]
    assert purposes == ["confirm", "aa", "climb", "climb", "climb", "ablate"]


@pytest.mark.parametrize("key", ["", "no JSON", "[]", "[1]", '{"a": 1}'])
def test_a_key_that_tells_no_purpose(key: str) -> None:
    assert purpose(ComparisonRecord(key=key, a=(), b=())) == ""


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        ((), (), "the command as it is, against itself"),
        ((), (P,), "p, against the command as it is"),
        ((P,), (P, F), "f, on top of p"),
        ((P, F), (F,), "the recipe without p"),
        ((P,), (C,), "c, against p"),
    ],
)
def test_titles(a: tuple[TechniqueChoice, ...], b: tuple[TechniqueChoice, ...], expected: str) -> None:
    assert title(ComparisonRecord(key="", a=a, b=b)) == expected


def test_the_outcome_names_what_it_rests_on(compare: Callable[..., ComparisonRecord]) -> None:
    comparison = compare("climb", (), (P,), ratio=1.4)
    assert comparison.speedup is not None
    quiet = dataclasses.replace(comparison.speedup, num_blocks=12, num_busy_blocks=0)
    busy = dataclasses.replace(comparison.speedup, num_blocks=11, num_busy_blocks=1)
    assert outcome(dataclasses.replace(comparison, speedup=quiet), 0.0).endswith("; 12 blocks in 1 pair")
    assert outcome(dataclasses.replace(comparison, speedup=busy), 0.0).endswith(", 1 busy one left out")


def test_the_outcome_without_a_speedup_says_why() -> None:
    plain = ComparisonRecord(key="", a=(), b=(P,))
    assert outcome(plain, 0.0) == "not measured"
    assert outcome(dataclasses.replace(plain, failure="killed"), 0.0) == "failed: killed"
    assert outcome(dataclasses.replace(plain, no_effect="no convolution"), 0.0) == "no effect: no convolution"
