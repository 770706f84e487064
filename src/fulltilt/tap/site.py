"""The site of an unmodified script: what the seams have found, and what techniques hang on it."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader

from fulltilt.tap.seams.backward import BackwardSeam
from fulltilt.tap.seams.calls import CallSeam
from fulltilt.technique import CallWrapper


class TapSite:
    """Everything found so far. `view()` gives a technique the part that is new."""

    def __init__(self, calls: CallSeam, backward: BackwardSeam) -> None:
        self._calls, self._backward = calls, backward
        self._modules: dict[str, weakref.ref[nn.Module]] = {}
        self._optimizers: dict[str, weakref.ref[torch.optim.Optimizer]] = {}
        self._loaders: list[weakref.ref[DataLoader[Any]]] = []
        self.before_step_callbacks: list[Callable[[torch.optim.Optimizer], None]] = []
        self.after_step_callbacks: list[Callable[[int], None]] = []
        self.notes: list[str] = []
        self.tie_draws = False
        self.on_note: Callable[[str], None] = lambda message: None

    @property
    def modules(self) -> dict[str, nn.Module]:
        return {name: module for name, reference in self._modules.items() if (module := reference()) is not None}

    @property
    def optimizers(self) -> dict[str, torch.optim.Optimizer]:
        return {name: item for name, reference in self._optimizers.items() if (item := reference()) is not None}

    @property
    def loaders(self) -> tuple[DataLoader[Any], ...]:
        return tuple(loader for reference in self._loaders if (loader := reference()) is not None)

    @property
    def device(self) -> torch.device:
        for module in self.modules.values():
            for parameter in module.parameters():
                return parameter.device
        for optimizer in self.optimizers.values():
            return next((p.device for group in optimizer.param_groups for p in group["params"]), torch.device("cpu"))
        return torch.device("cpu")

    def add_module(self, module: nn.Module) -> str:
        name = _new_name(type(module).__name__, self._modules)
        self._modules[name] = weakref.ref(module)
        return name

    def add_optimizer(self, optimizer: torch.optim.Optimizer) -> str:
        name = _new_name(type(optimizer).__name__, self._optimizers)
        self._optimizers[name] = weakref.ref(optimizer)
        return name

    def name_of(self, optimizer: torch.optim.Optimizer) -> str | None:
        for name, reference in self._optimizers.items():
            if reference() is optimizer:
                return name
        return None

    def add_loader(self, loader: DataLoader[Any]) -> None:
        self._loaders.append(weakref.ref(loader))

    def around(self, module: nn.Module, wrapper: CallWrapper) -> None:
        self._calls.around(module, wrapper)

    def around_backward(self, wrapper: CallWrapper) -> None:
        self._backward.wrappers.append(wrapper)
        self._backward.install()

    def before_optimizer_step(self, callback: Callable[[torch.optim.Optimizer], None]) -> None:
        self.before_step_callbacks.append(callback)

    def after_step(self, callback: Callable[[int], None]) -> None:
        self.after_step_callbacks.append(callback)

    def note(self, message: str) -> None:
        if message not in self.notes:
            self.notes.append(message)
            self.on_note(message)

    def view(
        self,
        *,
        modules: Mapping[str, nn.Module] | None = None,
        optimizers: Mapping[str, torch.optim.Optimizer] | None = None,
        loaders: tuple[DataLoader[Any], ...] | None = None,
    ) -> SiteView:
        """This site, with only what is named (and all of the kinds that are not)."""
        return SiteView(
            _site=self,
            modules=self.modules if modules is None else modules,
            optimizers=self.optimizers if optimizers is None else optimizers,
            loaders=self.loaders if loaders is None else loaders,
        )


@dataclass(frozen=True, kw_only=True)
class SiteView:
    """A `technique.Site` with what has newly appeared."""

    _site: TapSite
    modules: Mapping[str, nn.Module]
    optimizers: Mapping[str, torch.optim.Optimizer]
    loaders: tuple[DataLoader[Any], ...]

    @property
    def device(self) -> torch.device:
        return self._site.device

    @property
    def tie_draws(self) -> bool:
        return self._site.tie_draws

    def around(self, module: nn.Module, wrapper: CallWrapper) -> None:
        self._site.around(module, wrapper)

    def around_backward(self, wrapper: CallWrapper) -> None:
        self._site.around_backward(wrapper)

    def before_optimizer_step(self, callback: Callable[[torch.optim.Optimizer], None]) -> None:
        self._site.before_optimizer_step(callback)

    def after_step(self, callback: Callable[[int], None]) -> None:
        self._site.after_step(callback)

    def note(self, message: str) -> None:
        self._site.note(message)


def _new_name(class_name: str, taken: Mapping[str, object]) -> str:
    number = sum(1 for name in taken if name.rpartition("#")[0] == class_name)
    return f"{class_name}#{number}"
