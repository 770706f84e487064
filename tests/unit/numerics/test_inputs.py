import pytest
import torch
from torch import nn

from fulltilt.numerics.distance import distance
from fulltilt.numerics.inputs import InputCollector, folded
from fulltilt.numerics.sketching import sketch


def collected(*steps, module=None):
    collector = InputCollector()
    for tensors in steps:
        collector.called("Net#0", module or nn.Identity(), tensors, {})
        collector.step_done()
    return collector


def test_each_tensor_has_a_name_a_kind_and_values():
    collector = collected((torch.ones(4, 3), {"mask": torch.zeros(4, dtype=torch.bool)}))
    ((first, second),) = collector.inputs(1)
    assert (first.name, first.kind, first.values.norm) == ("Net#0.0", "float32 [4, 3]", pytest.approx(12**0.5))
    assert (second.name, second.kind) == ("Net#0.1", "bool [4]")


@pytest.mark.parametrize("numel", [3, 40, 64, 1000])
def test_two_elements_that_change_places_are_told_apart(numel):
    tensor = torch.arange(numel, dtype=torch.float32)
    swapped = tensor.clone()
    swapped[[0, -1]] = swapped[[-1, 0]]
    assert distance(folded(sketch(tensor)), folded(sketch(swapped))) > 0


def test_rows_that_come_again_are_counted_once():
    rows = torch.arange(12.0).view(4, 3)
    count = collected((rows,), (rows[:2],), (rows + 100,)).rows()["Net#0.0"]
    assert (count.distinct, count.total) == (8, 10)


def test_modules_in_evaluation_mode_are_named_step_by_step():
    net = nn.Sequential(nn.Linear(2, 2), nn.Dropout())
    collector = InputCollector()
    for step in range(2):
        net[1].train(step == 0)
        collector.called("Net#0", net, (torch.ones(1, 2),), {})
        collector.step_done()
    assert collector.modes(2) == ("", "Net#0.1")
