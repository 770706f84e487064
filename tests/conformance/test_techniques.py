"""Every technique passes every check of the shipped conformance kit, on the smallest script that it fits."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, IterableDataset

from fulltilt.techniques import NAMES, spec_of
from fulltilt.testing import conformance
from fulltilt.testing.conformance import Script


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.linear = nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + torch.tanh(self.linear(self.norm(x)))


class Net(nn.Module):
    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.first = nn.Linear(4, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(2))
        self.last = nn.Linear(width, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        for block in self.blocks:
            x = block(x)
        return self.last(x)


class ConvNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.last = nn.Linear(8, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(torch.relu(self.norm(self.conv(x))).mean((2, 3)))


class Numbers(Dataset[Any]):
    def __len__(self) -> int:
        return 24

    def __getitem__(self, index: int) -> Any:
        x = torch.full((4,), index / 24) + torch.arange(4)
        return x, x.sum().sin().reshape(1)


class Stream(IterableDataset[Any]):
    def __iter__(self) -> Any:
        return iter([Numbers()[index] for index in range(24)])


def tensors(*shape: int, dtype: torch.dtype = torch.float32) -> list[tuple[torch.Tensor, torch.Tensor]]:
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(*shape, generator=generator, dtype=dtype)
    return [(x, x.flatten(1).sum(1, keepdim=True).sin())]


def script(model: Callable[[], nn.Module] = Net, batches: Any = None, optimizer: Any = None, **rest: Any) -> Script:
    torch.manual_seed(0)
    made = model()
    make_optimizer = optimizer or (lambda parameters: torch.optim.AdamW(parameters, lr=1e-2))
    return Script(
        model=made,
        optimizer=make_optimizer(made.parameters()),
        loss=nn.functional.mse_loss,
        batches=tensors(8, 4) if batches is None else batches,
        **rest,
    )


SCRIPTS: dict[str, Callable[[], Script]] = {
    "cudnn_benchmark": lambda: script(ConvNet, tensors(4, 3, 6, 6)),
    "channels_last": lambda: script(ConvNet, tensors(4, 3, 6, 6)),
    "dataloader": lambda: script(batches=DataLoader(Numbers(), batch_size=8)),
}
OPTIONS: dict[str, list[dict[str, Any]]] = {
    "cpu_threads": [{"num_threads": 2}],
    "matmul_precision": [{"precision": "high"}, {"precision": "medium"}],
    "dataloader": [{"num_workers": 1, "persistent_workers": True}],
    "precision": [{"dtype": "bfloat16"}, {"dtype": "float16"}],
    "compile": [{"scope": "regions"}],
    "fused_optimizer": [{"implementation": "fused"}, {"implementation": "foreach"}],
}
CASES = [
    pytest.param(name, options, id="-".join([name, *map(str, options.values())]))
    for name in NAMES
    for options in OPTIONS.get(name, [{}])
]


@pytest.mark.parametrize("check", conformance.CHECKS, ids=lambda check: check.__name__.removeprefix("check_"))
@pytest.mark.parametrize(("name", "options"), CASES)
def test_keeps_the_promise(name: str, options: dict[str, Any], check: conformance.Check) -> None:
    spec = spec_of(name)
    check(spec, spec.options(**options), SCRIPTS.get(name, script))


def float64() -> Script:
    return script(lambda: Net().double(), tensors(8, 4, dtype=torch.float64))


def sparse() -> Script:
    class Table(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = nn.Embedding(8, 1, sparse=True)

        def forward(self, index: torch.Tensor) -> torch.Tensor:
            return self.table(index)

    batches = [(torch.arange(8), torch.ones(8, 1))]
    return script(Table, batches, lambda parameters: torch.optim.SparseAdam(list(parameters)))


def lbfgs() -> Script:
    return script(optimizer=lambda parameters: torch.optim.LBFGS(parameters, max_iter=2), closure=True)


def stream() -> Script:
    return script(batches=DataLoader(Stream(), batch_size=8))


UNFITTING = [
    ("precision", {}, float64),
    ("precision", {"dtype": "float16"}, lbfgs),
    ("precision", {}, sparse),
    ("fused_optimizer", {}, sparse),
    ("fused_optimizer", {}, lbfgs),
    ("fused_optimizer", {"implementation": "foreach"}, sparse),
    ("compile", {}, sparse),
    ("channels_last", {}, script),
    ("dataloader", {"num_workers": 2}, stream),
    ("dataloader", {"num_workers": 2}, script),
    ("cudnn_benchmark", {}, script),
    ("cpu_threads", {}, script),
]


@pytest.mark.parametrize(("name", "options", "make"), UNFITTING)
def test_leaves_alone_what_it_does_not_fit(name: str, options: dict[str, Any], make: Callable[[], Script]) -> None:
    spec = spec_of(name)
    conformance.check_leaves_alone(spec, spec.options(**options), make)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("make", [float64, sparse, lbfgs, stream])
def test_no_technique_breaks_an_unusual_script(name: str, make: Callable[[], Script]) -> None:
    spec = spec_of(name)
    options = spec.options(**OPTIONS.get(name, [{}])[0])
    before, after = conformance.run(make()), conformance.run(make(), spec, options)
    allowed = 32 * spec.rounding(options)
    assert after.losses == pytest.approx(before.losses, rel=allowed, abs=allowed)
