"""What a script holds in its own frames is found by the name that it has there."""

import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel

from fulltilt.numerics.held import HeldState


class Average:
    def __init__(self, model: nn.Module) -> None:
        self.shadow = {name: p.detach().clone() for name, p in model.named_parameters()}

    def update(self, model: nn.Module) -> None:
        self.shadow = {n: 0.9 * self.shadow[n] + 0.1 * p.detach() for n, p in model.named_parameters()}


def train(change=lambda things: None):
    """Two looks around, with `change` between them; what is found."""
    model = nn.Linear(3, 2)
    held = HeldState()
    queue = [torch.zeros(4) for _ in range(2)]
    averaged = AveragedModel(model)
    by_hand = Average(model)
    noise = torch.Generator().manual_seed(3)
    constant = torch.ones(5)
    counts = torch.zeros(3, dtype=torch.int64)
    things = {"model": model, "queue": queue, "averaged": averaged, "by_hand": by_hand, "noise": noise}
    held.look({"Linear#0": model})
    change(things)
    found = held.found({"Linear#0": model})
    del constant, counts
    return found


def test_averages_queues_and_constants_are_found_by_their_names():
    tensors, _ = train()
    names = {name.partition(": ")[2] for name in tensors if name.startswith("train: ")}
    assert names == {
        "queue[0]", "queue[1]", "constant", "averaged.module.weight", "averaged.module.bias",
        "by_hand.shadow['weight']", "by_hand.shadow['bias']",
    }  # fmt: skip


def test_a_generator_is_told_by_its_state():
    _, before = train()
    _, after = train(lambda things: torch.rand(1, generator=things["noise"]))
    assert set(before) == {"train: noise"}
    assert before != after


def test_changes_are_those_between_the_two_looks():
    tensors, _ = train(lambda things: things["queue"][0].fill_(2.0))
    first, second = (next(t for n, t in tensors.items() if n.endswith(f"queue[{i}]")) for i in (0, 1))
    assert (first.start.norm, first.end.norm) == (0.0, 4.0)
    assert second.start == second.end


def test_what_belongs_to_one_step_is_not_held():
    def loop():
        held = HeldState()
        for _ in range(2):
            inputs = torch.randn(3)
            loss = inputs.requires_grad_().sum()
            held.look({})
        inputs = torch.randn(3)
        found = held.found({})
        del loss
        return found

    tensors, _ = loop()
    assert not [name for name in tensors if "inputs" in name or "loss" in name]


def test_looking_keeps_nothing_alive_in_the_frame():
    import weakref

    def loop():
        big = torch.ones(10)
        gone = weakref.ref(big)
        HeldState().look({})
        del big
        return gone() is None

    assert loop()
