"""Channels-last layout in the worker: weights in place, inputs at the door, outputs back at the door."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from fulltilt.numerics.leftovers import Leftovers
from fulltilt.numerics.nested import map_tensors
from fulltilt.numerics.rewind import Rewinder
from fulltilt.technique import Applied, NoEffect, Site
from fulltilt.techniques.channels_last.spec import ChannelsLastOptions

_relaid: weakref.WeakKeyDictionary[nn.Module, _Layout] = weakref.WeakKeyDictionary()


def apply(site: Site, options: ChannelsLastOptions) -> Applied | NoEffect:
    """Lay out the 4-D weights of the site's root modules with channels last."""
    reasons = {name: _why_not(module) for name, module in site.modules.items()}
    layouts = []
    for name, module in site.modules.items():
        if reasons[name] is None:
            layout = _relaid[module] = _Layout(site, name, module)
            site.around(module, layout.call)
            layouts.append(layout)
    if not layouts:
        return NoEffect(reason="; ".join(dict.fromkeys(reason for reason in reasons.values() if reason)) or "no model")
    number = sum(layout.num_weights for layout in layouts)
    return Applied(detail=f"{number} weights with channels last", engaged=lambda: _proof(layouts))


class _Layout:
    """The layout of one root module."""

    def __init__(self, site: Site, name: str, module: nn.Module) -> None:
        self._site, self._name = site, name
        self._module = weakref.ref(module)
        self._rewinder = Rewinder(module)
        relaid = [tensor for tensor in _tensors(module) if _is_first(tensor)]
        self._tensors = [weakref.ref(tensor) for tensor in relaid]
        self.num_weights = len(self._tensors)
        self.num_calls = 0
        self.given_up = False
        for tensor in relaid:
            _lay_out(tensor, torch.channels_last)
        self._leftovers = Leftovers(module, _is_last, torch.Tensor.contiguous)
        self._fitted: weakref.WeakKeyDictionary[torch.optim.Optimizer, Any] = weakref.WeakKeyDictionary()
        """Optimizers with the state that was looked at: a checkpoint that is loaded brings another."""
        site.before_optimizer_step(self._fit_state)

    def call(self, call: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        module = self._module()
        if self.given_up or module is None:
            return call(*args, **kwargs)
        rewind = self._rewinder.before_call()
        try:
            output = self._relaid_call(call, args, kwargs)
        except torch.OutOfMemoryError:
            raise
        except Exception as error:
            reason = f"{type(error).__name__}: {error}".partition("\n")[0]
        else:
            if self._rewinder.call_succeeded():
                self._leftovers.find()
            return output
        rewind()
        return self._call_again(reason, call, args, kwargs)

    def _relaid_call(self, call: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        output = call(*map_tensors(args, _channels_last), **map_tensors(kwargs, _channels_last))
        self.num_calls += 1
        self._leftovers.put_right()
        return map_tensors(output, _channels_first)  # the script may take a view of it

    def _call_again(self, reason: str, call: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The call in the usual layout. An error of the script's own comes again, from here."""
        self._lay_out_all(torch.contiguous_format)
        try:
            output = call(*args, **kwargs)
        except Exception:
            self._lay_out_all(torch.channels_last)
            raise
        self.given_up = True
        self._site.note(f"channels_last: {self._name} does not take it, back to the usual layout ({reason})")
        return output

    def _lay_out_all(self, memory_format: torch.memory_format) -> None:
        for reference in self._tensors:
            tensor = reference()
            if tensor is not None:
                _lay_out(tensor, memory_format)
        self._fitted.clear()

    def _fit_state(self, optimizer: torch.optim.Optimizer) -> None:
        """Lay out like its parameter what an optimizer has kept from before: fused kernels do not look at strides."""
        if self._fitted.get(optimizer) is optimizer.state:
            return
        self._fitted[optimizer] = optimizer.state
        for parameter, state in optimizer.state.items():
            for value in state.values() if isinstance(state, dict) else ():
                if isinstance(value, torch.Tensor) and value.dim() == 4 and value.shape == parameter.shape:
                    value.data = torch.empty_like(parameter, dtype=value.dtype).copy_(value)


def _why_not(module: nn.Module) -> str | None:
    if module in _relaid:
        return "channels are last already"
    if isinstance(module, torch.jit.ScriptModule):
        return "a scripted module has its layout compiled in"
    if not any(isinstance(layer, nn.Conv2d | nn.ConvTranspose2d) for layer in module.modules()):
        return "no 2-D convolutions"
    if not any(_is_first(tensor) for tensor in _tensors(module)):
        return "channels are last already"
    return None


def _tensors(module: nn.Module) -> list[torch.Tensor]:
    return [*module.parameters(), *module.buffers()]


def _is_first(tensor: torch.Tensor) -> bool:
    """4-D, in the usual layout and not at the same time in the other one (a 1x1 kernel is in both)."""
    return (
        tensor.dim() == 4
        and tensor.is_floating_point()
        and tensor.is_contiguous()
        and not tensor.is_contiguous(memory_format=torch.channels_last)
    )


def _lay_out(tensor: torch.Tensor, memory_format: torch.memory_format) -> None:
    tensor.data = tensor.data.contiguous(memory_format=memory_format)
    if tensor.grad is not None:
        tensor.grad = tensor.grad.contiguous(memory_format=memory_format)


def _channels_last(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.contiguous(memory_format=torch.channels_last) if _is_first(tensor) else tensor


def _channels_first(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.contiguous() if _is_last(tensor) else tensor


def _is_last(tensor: torch.Tensor) -> bool:
    return (
        tensor.dim() == 4
        and tensor.is_floating_point()
        and not tensor.is_contiguous()
        and tensor.is_contiguous(memory_format=torch.channels_last)
    )


def _proof(layouts: list[_Layout]) -> str | None:
    calls = sum(layout.num_calls for layout in layouts if not layout.given_up)
    return f"{calls} calls" if calls else None
