"""Every fault is refused with the evidence that names it; every harmless change is kept in the class that it claims."""

import re

import pytest

import faults.gallery  # noqa: F401
from faults.change import FAULTS, HARMLESS, SEEDS, Change
from faults.techniques import TECHNIQUES
from faults.workbench import Workbench

pytestmark = pytest.mark.timeout(600)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("change", FAULTS.values(), ids=FAULTS)
def test_a_fault_is_refused_and_named(workbench: Workbench, change: Change, seed: int) -> None:
    verdicts = workbench.judge(change, seed).result()
    against = [sentence for verdict in verdicts for sentence in verdict.broken]
    assert not all(verdict.kept for verdict in verdicts)
    assert {sentence.partition(":")[0] for sentence in against} & set(change.shown_by), against
    assert any(re.search(change.names, sentence) for sentence in against), against


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("change", HARMLESS.values(), ids=HARMLESS)
def test_what_is_harmless_is_kept(workbench: Workbench, change: Change, seed: int) -> None:
    assert [verdict.broken for verdict in workbench.judge(change, seed).result() if not verdict.kept] == []


@pytest.mark.parametrize("seed", SEEDS[:1])
@pytest.mark.parametrize("change", TECHNIQUES.values(), ids=TECHNIQUES)
def test_the_techniques_that_we_offer_are_kept(workbench: Workbench, change: Change, seed: int) -> None:
    """Also where compiled code draws other masks: with the script's own, it differs by rounding only."""
    assert [verdict.broken for verdict in workbench.judge(change, seed).result() if not verdict.kept] == []


def test_the_galleries_are_large_enough() -> None:
    classes = [(change.numerics.value, change.changes_draws) for change in HARMLESS.values()]
    assert len(FAULTS) >= 100
    assert sum(kind == ("EXACT", False) for kind in classes) >= 20
    assert sum(kind == ("ROUNDING", False) for kind in classes) >= 20
    assert sum(draws for _, draws in classes) >= 20
