"""Small real trainings with evidence: `train(...)` trains for eight steps on the CPU and returns what was recorded.

`change` names what is different from the plain command: a harmless change or a fault.
"""

import copy
import hashlib
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.func import functional_call
from torch.nn import functional as F

from fulltilt.numerics.sketching import sketch, state_signature
from fulltilt.records.record import Evidence, ParameterEvidence

NUM_STEPS = 8
VOCABULARY, WIDTH, CONTEXT, BATCH, CLASSES = 61, 32, 16, 16, 10


class Attention(nn.Module):
    def __init__(self, dropout: float) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.query, self.key, self.value = (nn.Linear(WIDTH, WIDTH) for _ in range(3))
        self.out = nn.Linear(WIDTH, WIDTH)
        self.dropout = nn.Dropout(dropout)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        normed = self.norm(hidden)
        heads = [f(normed).unflatten(-1, (2, -1)).transpose(1, 2) for f in (self.query, self.key, self.value)]
        mixed = F.scaled_dot_product_attention(*heads, is_causal=True).transpose(1, 2).flatten(2)
        return hidden + self.dropout(self.out(mixed))


class LanguageModel(nn.Module):
    """A tied-embedding transformer with key biases, whose true gradient is zero."""

    def __init__(self, dropout: float) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        nn.init.normal_(self.embedding.weight, std=0.2)
        self.blocks = nn.ModuleList(Attention(dropout) for _ in range(2))
        self.up, self.down = nn.Linear(WIDTH, 64), nn.Linear(64, WIDTH)
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        hidden = self.embedding(tokens)
        for block in self.blocks:
            hidden = block(hidden)
        return self.head(hidden + self.down(F.gelu(self.up(hidden))))


def multilayer_perceptron(dropout: float) -> nn.Module:
    """With biases before BatchNorm, whose true gradient is zero."""
    return nn.Sequential(
        nn.Linear(20, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Dropout(dropout),
        nn.Linear(64, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, CLASSES),
    )  # fmt: skip


def convolutional_network(dropout: float) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.Dropout(dropout),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, CLASSES),
    )  # fmt: skip


MODELS: dict[str, Callable[[float], nn.Module]] = {
    "lm": LanguageModel,
    "mlp": multilayer_perceptron,
    "cnn": convolutional_network,
}


def batches(model: str, seed: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    generator = torch.Generator().manual_seed(1000 + seed)
    if model == "lm":
        starts = torch.randint(VOCABULARY, (NUM_STEPS, BATCH, 1), generator=generator)
        tokens = (starts + 7 * torch.arange(CONTEXT + 1)) % VOCABULARY
        noisy = torch.where(torch.rand(tokens.shape, generator=generator) < 0.1, starts, tokens)
        return [(step[:, :-1], step[:, 1:].flatten()) for step in noisy]
    shape = (20,) if model == "mlp" else (3, 8, 8)
    inputs = torch.randn(NUM_STEPS, 4 * BATCH, *shape, generator=generator)
    teacher = torch.randn(inputs[0, 0].numel(), CLASSES, generator=generator)
    return [(step, (step.flatten(1) @ teacher).argmax(1)) for step in inputs]


def make_optimizer(name: str, parameters: list[nn.Parameter], change: str) -> torch.optim.Optimizer:
    fused = {"fused": True} if change == "fused" else {"foreach": True} if change == "foreach" else {}
    if name == "sgd":
        return torch.optim.SGD(parameters, lr=0.05, momentum=0.9, weight_decay=0.01, **fused)
    return torch.optim.AdamW(parameters, lr=2e-3, weight_decay=0.0 if change == "weight decay lost" else 0.1, **fused)


class Training:
    """One training under one change; `evidence()` after `run()`."""

    def __init__(self, model: str, optimizer: str, seed: int, dropout: float, change: str) -> None:
        torch.manual_seed(seed)
        self.change, self.data = change, batches(model, seed)
        self.module = MODELS[model](dropout)
        if change == "weights untied":
            self.module.head.weight = nn.Parameter(self.module.head.weight.detach().clone())
        if change == "bfloat16 weights":
            self.module.bfloat16()
        if change == "channels_last":
            self.module.to(memory_format=torch.channels_last)
        for layer in self.module.modules():
            if isinstance(layer, nn.Dropout) and change == "dropout 0.3":
                layer.p = 0.3
        self.module.train(change != "eval left on")
        self.optimizer = make_optimizer(optimizer, list(self.module.parameters()), change)
        self.losses: list[tuple[float, ...]] = []
        self.gradient_norms: list[float] = []
        self.executed = 0
        self.first_gradients: dict[str, Any] = {}

    def perturb(self, relative: float, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for parameter in self.module.parameters():
                noise = torch.rand(parameter.shape, generator=generator, dtype=torch.float64) * 2 - 1
                parameter.copy_(parameter * (1 + relative * noise))

    def run(self) -> None:
        self.starts = {name: sketch(p) for name, p in self.module.named_parameters()}
        self.stale = {name: p.detach().clone() for name, p in self.module.named_parameters()}
        for step, (inputs, labels) in enumerate(self.data):
            self._step(step, inputs, labels)

    def _step(self, step: int, inputs: torch.Tensor, labels: torch.Tensor) -> None:
        if self.change == "labels shuffled once" and step == 3:
            labels = labels.roll(5)
        self.optimizer.zero_grad()
        loss = self._loss(inputs, labels)
        loss = loss * 2 if self.change == "loss doubled" else loss
        loss.backward()
        self.losses.append((float(loss.detach()),))
        self._spoil_gradients(step)
        nn.utils.clip_grad_norm_(self.module.parameters(), 5.0, foreach=False)
        gradients = {n: p.grad for n, p in self.module.named_parameters() if p.grad is not None}
        self.gradient_norms.append(float(sum(g.double().square().sum() for g in gradients.values()) ** 0.5))
        if step == 0:
            self.first_gradients = {name: sketch(gradient) for name, gradient in gradients.items()}
        self._update(step)

    def _loss(self, inputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        if self.change == "bfloat16 weights" and inputs.is_floating_point():
            inputs = inputs.bfloat16()
        if self.change == "channels_last":
            inputs = inputs.contiguous(memory_format=torch.channels_last)
        if self.change == "BatchNorm twice":
            with torch.no_grad():
                self.module(inputs)
        with torch.autocast("cpu", torch.bfloat16, enabled=self.change == "bfloat16 autocast"):
            if self.change == "stale autocast weights":
                logits = functional_call(self.module, self._stale_weights(), (inputs,))
            else:
                logits = self.module(inputs)
        logits = logits.float().flatten(0, -2)
        if self.change == "sum in float64":
            return F.cross_entropy(logits.double(), labels, reduction="none").flip(0).mean().float()
        return F.cross_entropy(logits, labels)

    def _stale_weights(self) -> dict[str, torch.Tensor]:
        """The values of the first step with the gradients of the current weights."""
        return {n: p + (self.stale[n].bfloat16().float() - p).detach() for n, p in self.module.named_parameters()}

    def _spoil_gradients(self, step: int) -> None:
        parameters = list(self.module.parameters())
        if self.change == "gradient missing":
            parameters[-2].grad = None
        if self.change == "gradient zero":
            parameters[-2].grad.zero_()
        if self.change == "gradient not a number" and step == 3:
            parameters[0].grad.view(-1)[3] = float("nan")
        factor = {"clipped before unscaling": 1024.0, "accumulation off by 2": 2.0}.get(self.change, 1.0)
        for parameter in parameters:
            if parameter.grad is not None and factor != 1.0:
                parameter.grad.mul_(factor)

    def _update(self, step: int) -> None:
        if self.change == "step skipped" and step == 4:
            return
        before = [p.detach().clone() for p in self.module.parameters()]
        self.optimizer.step()
        self.executed += 1
        if self.change == "step not counted" and step == 4:
            self._move(before, 0.0)
        if self.change == "learning rate +10 %":
            self._move(before, 1.1)
        if self.change == "learning rate -10 %":
            self._move(before, 0.9)

    def _move(self, before: list[torch.Tensor], factor: float) -> None:
        with torch.no_grad():
            for parameter, old in zip(self.module.parameters(), before, strict=True):
                parameter.copy_(old + factor * (parameter - old))

    def evidence(self) -> Evidence:
        prefix = "wrapped." if self.change == "key renamed" else ""
        group = self.optimizer.state_dict()["param_groups"][0]
        return Evidence(
            num_steps=len(self.losses),
            losses=tuple(self.losses),
            gradient_norms=tuple(self.gradient_norms),
            parameters={
                name: ParameterEvidence(
                    shape=tuple(p.shape),
                    dtype=str(p.dtype).removeprefix("torch."),
                    start=self.starts[name],
                    end=sketch(p),
                    first_gradient=self.first_gradients.get(name),
                )
                for name, p in self.module.named_parameters()
            },
            buffers={name: sketch(buffer) for name, buffer in self.module.named_buffers()},
            state_dict={prefix + key: state_signature(value) for key, value in self.module.state_dict().items()},
            optimizer_state={f"Optimizer.group0.{key}": repr(value) for key, value in group.items() if key != "params"}
            | {
                f"Optimizer.state{index}.{key}": str(getattr(value, "dtype", type(value).__name__))
                for index, values in self.optimizer.state_dict()["state"].items()
                for key, value in values.items()
            },
            aliases=self._aliases(),
            executed_steps={"Optimizer": self.executed},
            draws=hashlib.sha256(torch.get_rng_state().numpy().tobytes()).hexdigest()[:16],
        )

    def _aliases(self) -> tuple[tuple[str, ...], ...]:
        groups: dict[int, list[str]] = {}
        for name, parameter in self.module.named_parameters(remove_duplicate=False):
            groups.setdefault(parameter.data_ptr(), []).append(name)
        return tuple(tuple(names) for names in groups.values() if len(names) > 1)


_SEEN: dict[tuple[Any, ...], Evidence] = {}


def train(
    model: str = "mlp",
    optimizer: str = "adamw",
    seed: int = 0,
    *,
    dropout: float = 0.0,
    change: str = "none",
    perturb: tuple[float, int] = (0.0, 0),
    reseed: int | None = None,
) -> Evidence:
    """The evidence of one training; equal requests are trained once, but "repeat" is a training of its own."""
    key = (model, optimizer, seed, dropout, change, perturb, reseed)
    if key not in _SEEN:
        with torch.random.fork_rng(devices=[]):
            training = Training(model, optimizer, seed, dropout, change)
            if perturb[0]:
                training.perturb(*perturb)
            if reseed is not None:
                torch.manual_seed(reseed)
            threads = torch.get_num_threads()
            torch.set_num_threads(2 if change == "two threads" else 1)
            try:
                training.run()
            finally:
                torch.set_num_threads(threads)
            _SEEN[key] = training.evidence()
    return copy.deepcopy(_SEEN[key])


@pytest.fixture(name="train")
def train_fixture() -> Callable[..., Evidence]:
    return train
