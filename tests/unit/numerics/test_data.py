"""What is given to a model is compared by kind, value, distinct samples and mode."""

import dataclasses

import pytest
import torch
from torch import nn

from fulltilt.numerics.inputs import InputCollector
from fulltilt.numerics.verdict import judge
from fulltilt.records.record import RowCount
from fulltilt.records.words import Numerics
from fulltilt.trials.mock import mock_evidence


def evidence_with(inputs, modes=("", ""), rows=None):
    collector = InputCollector()
    for tensor in inputs:
        collector.called("Net#0", nn.Identity(), (tensor,), {})
        collector.step_done()
    return dataclasses.replace(
        mock_evidence(2),
        inputs=collector.inputs(2),
        modes=modes,
        rows={"Net#0.0": RowCount(distinct=rows, total=8)} if rows else collector.rows(),
    )


PLAIN = [torch.arange(8.0).view(4, 2), torch.arange(8.0, 16.0).view(4, 2)]


def broken(candidate, sampling=()):
    baseline = evidence_with(PLAIN)
    found = judge(
        candidate,
        baseline,
        numerics=Numerics.ROUNDING,
        repeat=[baseline],
        rounding=[baseline],
        sampling=sampling,
        changes_draws=bool(sampling),
    )
    return {sentence.partition(":")[0]: sentence for sentence in found.broken}


def test_the_same_inputs_are_kept():
    assert broken(evidence_with(PLAIN)) == {}


@pytest.mark.parametrize(
    ("inputs", "kind", "words"),
    [
        ([PLAIN[0], PLAIN[1][:3]], "inputs", "at step 2 Net#0.0 is float32 [3, 2], in the baseline"),
        ([PLAIN[0], PLAIN[1].double()], "inputs", "at step 2 Net#0.0 is float64"),
        ([PLAIN[0], PLAIN[1] + 1], "values of inputs", "Net#0.0 at step 2"),
        ([PLAIN[1], PLAIN[0]], "values of inputs", "Net#0.0 at step 1"),
        ([PLAIN[0].flip(0), PLAIN[1]], "values of inputs", "Net#0.0 at step 1"),
        ([PLAIN[0], PLAIN[0]], "distinct samples", "4 of 8 rows"),
    ],
)
def test_other_inputs_are_refused_by_step_and_name(inputs, kind, words):
    assert words in broken(evidence_with(inputs))[kind]


def test_samples_that_come_twice_are_seen_among_other_draws_too():
    draws = [evidence_with([torch.randn(4, 2), torch.randn(4, 2)]) for _ in range(2)]
    assert broken(evidence_with([torch.randn(4, 2), torch.randn(4, 2)]), draws) == {}
    batch = torch.randn(4, 2)
    assert set(broken(evidence_with([batch, batch]), draws)) == {"distinct samples"}


def test_evaluation_mode_is_named_by_its_step():
    assert "at step 2 Net#0.drop is in evaluation mode" in broken(evidence_with(PLAIN, ("", "Net#0.drop")))["modes"]
