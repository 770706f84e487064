"""Collects the numbers of the first training steps inside the user's process. Worker side.

The collector is told of root modules, backward calls, optimizer steps and ends of training steps; it reads, and changes
nothing but what its request asks for (perturbed weights, other random numbers). Random streams are not touched.
"""

from __future__ import annotations

import hashlib
import math
import random
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset

from fulltilt.numerics.held import HeldState
from fulltilt.numerics.inputs import InputCollector
from fulltilt.numerics.sketching import sketch, state_signature
from fulltilt.records.record import Evidence, HeldTensor, ParameterEvidence, TensorSketch
from fulltilt.records.request import EvidenceRequest


@dataclass
class _Parameter:
    name: str
    start: TensorSketch
    first_gradient: TensorSketch | None


@dataclass
class EvidenceCollector:
    """Feed it events; `done` after the requested number of steps; `evidence()` at any time gives what there is."""

    request: EvidenceRequest
    reseed: Callable[[int], None]
    modules: dict[str, nn.Module] = field(default_factory=dict)
    optimizers: dict[str, torch.optim.Optimizer] = field(default_factory=dict)
    num_steps: int = 0

    def __post_init__(self) -> None:
        self._losses: list[list[float]] = [[]]
        self._gradient_norms: list[float] = []
        self._squared_norm = 0.0
        self._parameters: dict[int, _Parameter] = {}
        self._started: set[str] = set()
        self._executed: dict[str, int] = {}
        self._closures: set[str] = set()
        """Optimizers that had no gradient before their first step."""
        self._inputs = InputCollector()
        self._held = HeldState()
        self._found: tuple[dict[str, HeldTensor], dict[str, str]] = ({}, {})
        self._perturbed: set[int] = set()
        self._reseeded = False
        self._waiting: set[int] = set()
        """Parameters that no optimizer has stepped yet."""
        self._alive: list[torch.Tensor] = []
        """The parameters, kept alive so that their ids stay theirs."""

    @property
    def done(self) -> bool:
        return self.num_steps >= self.request.num_steps

    def module_found(self, name: str, module: nn.Module) -> None:
        """A root module is about to be called for the first time in training."""
        self.modules[name] = module
        if self.request.perturb_relative:
            self._perturb(module)
        self.draw_otherwise()

    def draw_otherwise(self) -> None:
        """Seed anew, once, where the request asks for it: training is about to draw its first numbers."""
        if self.request.reseed is not None and not self._reseeded:
            self._reseeded = True
            self.reseed(self.request.reseed)

    def module_called(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """The user's code is about to call a root module in training."""
        for name, root in self.modules.items():
            if root is module:
                self._inputs.called(name, module, args, kwargs)

    def backward_called(self, tensors: Any) -> None:
        """`torch.autograd.backward` is about to be called on these tensors."""
        for tensor in (tensors,) if isinstance(tensors, torch.Tensor) else tuple(tensors):
            if isinstance(tensor, torch.Tensor) and tensor.numel() == 1:
                self._losses[-1].append(float(tensor.detach()))

    def before_step(self, name: str, optimizer: torch.optim.Optimizer) -> None:
        """An optimizer is about to step: gradients are there, the user's clipping is done."""
        parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        self._perturb_gradients(parameters)
        if name not in self._started:
            self._started.add(name)
            self.optimizers[name] = optimizer
            self._start_others()
            self._start(parameters, name)
            if all(parameter.grad is None for parameter in parameters):
                self._closures.add(name)
        if name not in self._closures:
            self._squared_norm += _squared_norm(parameter.grad for parameter in parameters)

    def before_step_without_optimizer(self) -> None:
        """A backward call is done in a script that updates its parameters by hand."""
        parameters = [p for module in self.modules.values() for p in module.parameters() if p.requires_grad]
        self._perturb_gradients(parameters)
        if not self._started:
            self._started.add("")
            self._start(parameters, "")
        self._squared_norm += _squared_norm(parameter.grad for parameter in parameters)

    def after_optimizer(self, name: str) -> None:
        """An optimizer has stepped. One with a closure has made its gradients inside of the step: they are read now."""
        self._executed[name] = self._executed.get(name, 0) + 1
        if name in self._closures:
            groups = self.optimizers[name].param_groups
            parameters = [parameter for group in groups for parameter in group["params"]]
            self._squared_norm += _squared_norm(parameter.grad for parameter in parameters)
            for parameter in parameters if self._executed[name] == 1 else ():
                if parameter.grad is not None:
                    self._parameters[id(parameter)].first_gradient = sketch(parameter.grad)

    def step_done(self) -> None:
        """A training step has ended."""
        self.num_steps += 1
        self._inputs.step_done()
        self._gradient_norms.append(math.sqrt(self._squared_norm))
        self._squared_norm = 0.0
        self._losses.append([])

    def look_around(self) -> None:
        """See what the script holds in its frames, which are on the stack now; after the first and the last step."""
        if self.num_steps <= 1:
            self._held.look(self.modules)
        if self.done:
            self._found = self._held.found(self.modules)

    def evidence(self, loaders: Sequence[DataLoader[Any]] = ()) -> Evidence:
        """What has been seen so far; `loaders` are those that were iterated."""
        held, generators = self._found
        return Evidence(
            num_steps=self.num_steps,
            losses=tuple(tuple(losses) for losses in self._losses[: self.num_steps]),
            gradient_norms=tuple(self._gradient_norms),
            parameters=self._parameter_evidence(),
            buffers={
                f"{root}.{name}": sketch(buffer)
                for root, module in self.modules.items()
                for name, buffer in module.named_buffers()
            },
            state_dict=_state_signatures(self.modules),
            optimizer_state=_optimizer_signatures(self.optimizers),
            aliases=_aliases(self.modules),
            executed_steps=dict(self._executed),
            draws=_hash_of_streams(),
            inputs=self._inputs.inputs(self.num_steps),
            modes=self._inputs.modes(self.num_steps),
            rows=self._inputs.rows(),
            held=held,
            generators=generators,
            loaders={f"DataLoader#{index}": _describe_loader(loader) for index, loader in enumerate(loaders)},
        )

    def _start_others(self) -> None:
        """Parameters that no optimizer has stepped yet: frozen ones, or of an optimizer whose turn comes later."""
        for root, module in self.modules.items():
            for name, parameter in module.named_parameters():
                if id(parameter) not in self._parameters and not torch.nn.parameter.is_lazy(parameter):
                    self._parameters[id(parameter)] = _Parameter(f"{root}.{name}", sketch(parameter), None)
                    self._alive.append(parameter)
                    self._waiting.add(id(parameter))

    def _start(self, parameters: Sequence[torch.Tensor], owner: str) -> None:
        names = self._names_of_parameters()
        for index, parameter in enumerate(parameters):
            if id(parameter) not in self._parameters or id(parameter) in self._waiting:
                self._parameters[id(parameter)] = _Parameter(
                    name=names.get(id(parameter), f"{owner}.parameter{index}"),
                    start=sketch(parameter),
                    first_gradient=None if parameter.grad is None else sketch(parameter.grad),
                )
                if id(parameter) not in self._waiting:
                    self._alive.append(parameter)
                self._waiting.discard(id(parameter))

    def _names_of_parameters(self) -> dict[int, str]:
        names: dict[int, str] = {}
        for root, module in self.modules.items():
            for name, parameter in module.named_parameters():
                names.setdefault(id(parameter), f"{root}.{name}")
        return names

    def _parameter_evidence(self) -> dict[str, ParameterEvidence]:
        found: dict[str, ParameterEvidence] = {}
        for parameter in self._alive:
            known = self._parameters[id(parameter)]
            found[known.name] = ParameterEvidence(
                shape=tuple(parameter.shape),
                dtype=str(parameter.dtype).removeprefix("torch."),
                start=known.start,
                end=sketch(parameter),
                first_gradient=known.first_gradient,
            )
        return found

    def _perturb(self, module: nn.Module) -> None:
        generator = torch.Generator().manual_seed(1_000_003 * self.request.perturb_seed + len(self._perturbed))
        with torch.no_grad():
            for parameter in module.parameters():
                if torch.nn.parameter.is_lazy(parameter) or id(parameter) in self._perturbed:
                    continue
                if parameter.is_floating_point():
                    self._perturbed.add(id(parameter))
                    noise = torch.rand(parameter.shape, generator=generator, dtype=torch.float64, device="cpu") * 2 - 1
                    whole = torch.rand((), generator=generator, dtype=torch.float64, device="cpu") * 2 - 1
                    parameter.mul_((1 + (noise + whole) * self.request.perturb_relative).to(parameter))

    def _perturb_gradients(self, parameters: Sequence[torch.Tensor]) -> None:
        """Rounding in a backward pass is relative to the terms of a sum, not to the sum: where they cancel (the bias of
        attention's keys), a gradient of nearly zero carries noise of the size of its neighbors' rounding, and Adam
        turns that into whole steps. So each element gets noise relative to the root mean square of its tensor."""
        if not self.request.perturb_relative:
            return
        seed = 7_000_003 * self.request.perturb_seed + self.num_steps
        generator = torch.Generator().manual_seed(seed)
        for parameter in parameters:
            gradient = parameter.grad
            if gradient is not None and gradient.layout is torch.strided and gradient.is_floating_point():
                size = self.request.perturb_relative * float(gradient.square().mean().sqrt())
                noise = torch.rand(gradient.shape, generator=generator, device="cpu") * 2 - 1
                gradient.add_(noise.to(gradient), alpha=size)


def _squared_norm(gradients: Iterable[torch.Tensor | None]) -> float:
    total = 0.0
    for gradient in gradients:
        if gradient is not None:
            values = gradient.coalesce().values() if gradient.is_sparse else gradient
            total += float(torch.linalg.vector_norm(values.detach(), dtype=_wide(values))) ** 2
    return total


def _wide(values: torch.Tensor) -> torch.dtype:
    return torch.complex128 if values.is_complex() else torch.float64


def _state_signatures(modules: Mapping[str, nn.Module]) -> dict[str, str]:
    signatures: dict[str, str] = {}
    for root, module in modules.items():
        signatures[root] = type(module).__name__
        for key, value in module.state_dict().items():
            kind = state_signature(value) if isinstance(value, torch.Tensor) else type(value).__name__
            signatures[f"{root}.{key}"] = kind
    return signatures


def _optimizer_signatures(optimizers: Mapping[str, torch.optim.Optimizer]) -> dict[str, str]:
    signatures: dict[str, str] = {}
    for root, optimizer in optimizers.items():
        state = optimizer.state_dict()
        for index, group in enumerate(state["param_groups"]):
            for key, value in group.items():
                plain = isinstance(value, bool | int | float | str | type(None))
                signatures[f"{root}.group{index}.{key}"] = repr(value) if plain else type(value).__name__
        for index, values in state["state"].items():
            for key, value in values.items() if isinstance(values, dict) else ():
                kind = str(value.dtype) if isinstance(value, torch.Tensor) else type(value).__name__
                signatures[f"{root}.state{index}.{key}"] = kind
    return signatures


def _aliases(modules: Mapping[str, nn.Module]) -> tuple[tuple[str, ...], ...]:
    groups: dict[int, list[str]] = {}
    for root, module in modules.items():
        for name, parameter in module.named_parameters(remove_duplicate=False):
            if parameter.numel() and parameter.layout is torch.strided and not parameter.is_meta:
                groups.setdefault(parameter.data_ptr(), []).append(f"{root}.{name}")
    return tuple(sorted(tuple(names) for names in groups.values() if len(names) > 1))


def _describe_loader(loader: DataLoader[Any]) -> str:
    """What it gives in an epoch, and nothing about how."""
    if isinstance(loader.dataset, IterableDataset):
        return f"an iterable dataset in batches of {loader.batch_size}"
    size = "" if loader.batch_size is None else f" of {loader.batch_size}"
    return f"{_length(loader)} batches{size}, {_length(loader.dataset)} samples"


def _length(sized: Any) -> str:
    try:
        return str(len(sized))
    except (TypeError, NotImplementedError):
        return "unknown"


def _hash_of_streams() -> str:
    digest = hashlib.sha256(bytes(torch.get_rng_state().tolist()))
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        for state in torch.cuda.get_rng_state_all():
            digest.update(bytes(state.tolist()))
    digest.update(repr(random.getstate()).encode())
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        digest.update(
            repr([part if not hasattr(part, "tolist") else part.tolist() for part in numpy.random.get_state()]).encode()
        )
    return digest.hexdigest()[:16]
