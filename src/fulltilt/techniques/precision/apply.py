"""Mixed precision in the worker: an autocast region around each call of a root module, and around nothing else.

The region is closed before the user's code goes on, so weights cast inside it never outlive an optimizer step
(https://github.com/pytorch/pytorch/issues/120376 shows what happens otherwise), losses outside the model are computed
in float32, and `.numpy()` works on what the model returns.
"""

from __future__ import annotations

import functools
import gc
import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from fulltilt.numerics.leftovers import Leftovers
from fulltilt.numerics.nested import map_tensors, tensors_in
from fulltilt.numerics.rewind import Rewinder
from fulltilt.technique import Applied, NoEffect, Site
from fulltilt.techniques.precision import finiteness, islands, own_autocast
from fulltilt.techniques.precision.loss_scaling import LossScaling
from fulltilt.techniques.precision.spec import PrecisionOptions

_HALF = (torch.float16, torch.bfloat16)
_OWN_AUTOCAST = "opens an autocast region of its own"
_SAMPLE_SIZE = 8
"""Parameters that are looked at in each call: to walk through all of them takes longer than a small step."""


def apply(site: Site, options: PrecisionOptions) -> Applied | NoEffect:
    """Put an autocast region around the calls of the site's root modules."""
    dtype = torch.bfloat16 if options.dtype == "bfloat16" else torch.float16
    reasons = {name: _why_not(module, dtype) for name, module in site.modules.items()}
    fitting = {name: module for name, module in site.modules.items() if reasons[name] is None}
    if not fitting:
        return NoEffect(reason="; ".join(dict.fromkeys(reason for reason in reasons.values() if reason)) or "no model")
    scaling = None
    if dtype is torch.float16:
        reason = _why_no_scaling(site)
        if reason is not None:
            return NoEffect(reason=reason)
        scaling = LossScaling.of_process(site)
        for module in fitting.values():
            scaling.watch(module.parameters())
    islands.install(site.note)
    regions = []
    for name, module in fitting.items():
        region = _regions[module] = _Region(site, name, module, dtype, scaling)
        site.around(module, region.call)
        regions.append(region)
    return Applied(detail=f"autocast to {options.dtype} around {', '.join(fitting)}", engaged=lambda: _proof(regions))


class _Region:
    """The autocast region of one root module."""

    def __init__(
        self, site: Site, name: str, module: nn.Module, dtype: torch.dtype, scaling: LossScaling | None
    ) -> None:
        self.module = weakref.ref(module)
        self.dtype = dtype
        self._site, self._name, self._scaling = site, name, scaling
        self._cache = not _cache_loses_gradients()
        self._rewinder = Rewinder(module)
        self._leftovers = Leftovers(module, lambda tensor: tensor.dtype is dtype, torch.Tensor.float)
        parameters = list(module.parameters())
        self._some = [weakref.ref(parameter) for parameter in parameters[:: max(1, len(parameters) // _SAMPLE_SIZE)]]
        self.num_calls = 0
        self.given_up = ""

    def call(self, call: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        module = self.module()
        if module is None or self.given_up:
            return call(*args, **kwargs)
        device_type = _device_type(module)
        if self._must_not(device_type):
            return call(*args, **kwargs)
        rewind = self._rewinder.before_call()
        watch = own_autocast.Watch() if self._rewinder.is_learning else None
        try:
            output = self._cast_call(device_type, call if watch is None else watch.around(call), args, kwargs)
        except torch.OutOfMemoryError:
            raise
        except Exception as error:  # also an assertion of the script's about dtypes
            reason: str | None = _in_short(error)
        else:
            if watch is None:
                return output
            again = functools.partial(self._cast_call, device_type, call, args, kwargs)
            reason = self._reason_against(module, output, watch, rewind, again)
            if reason is None:
                return output
        rewind()
        return self._call_again(str(reason), call, args, kwargs)

    def _reason_against(
        self,
        module: nn.Module,
        output: Any,
        watch: own_autocast.Watch,
        rewind: Callable[[], None],
        again: Callable[[], Any],
    ) -> str | None:
        """What speaks against a first call that went through."""
        self._rewinder.call_succeeded()
        self._leftovers.find()
        if watch.seen:
            return _OWN_AUTOCAST
        if self.dtype is torch.bfloat16 or finiteness.is_finite(output):
            return None
        rewind()
        return finiteness.first_module(module, again, str(self.dtype))

    def _must_not(self, device_type: str) -> bool:
        """Has the script come to decide about the precision itself? Asked at each call: it may at any time."""
        if self._scaling is not None:
            self._scaling.look_for_closure()
            if self._scaling.given_up:
                self._give_up(f"back to float32, {self._scaling.given_up}")
                return True
        if torch.is_autocast_enabled(device_type):
            self._site.note(f"precision: {self._name} is called inside the script's own autocast, left as it is")
            return True
        if any(parameter.dtype in _HALF for parameter in self._sample()):
            self._site.note(f"precision: the script has put {self._name} into half precision, left as it is")
            return True
        return False

    def _sample(self) -> list[torch.Tensor]:
        return [parameter for reference in self._some if (parameter := reference()) is not None]

    def _cast_call(self, device_type: str, call: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        with torch.autocast(device_type, dtype=self.dtype, cache_enabled=self._cache):
            output = call(*args, **kwargs)
        self.num_calls += 1
        self._leftovers.put_right()
        return as_float32(output, self.dtype, given=(args, kwargs))

    def _call_again(self, reason: str, call: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The call in float32. An error of the script's own comes again, from here, and changes nothing."""
        output = call(*args, **kwargs)
        if reason == _OWN_AUTOCAST:
            self._give_up(f"{self._name} {reason}, left as it is")
        elif finiteness.MARK not in reason or finiteness.is_finite(output):
            self._give_up(f"back to float32, {self._name} cannot run in {self.dtype} ({reason})")
        return output

    def _give_up(self, reason: str) -> None:
        self.given_up = reason
        self._site.note(f"precision: {reason}")


_regions: weakref.WeakKeyDictionary[nn.Module, _Region] = weakref.WeakKeyDictionary()
"""Modules that have their region: applying twice does nothing twice."""


def _in_short(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}".partition("\n")[0][:300]


def as_float32(output: Any, dtype: torch.dtype, *, given: Any) -> Any:
    """`output` with its tensors of `dtype` in float32, but for those that were handed in like that."""
    handed_in = {id(tensor) for tensor in tensors_in(given) if tensor.dtype is dtype}
    return map_tensors(
        output, lambda tensor: tensor.float() if tensor.dtype is dtype and id(tensor) not in handed_in else tensor
    )


def _why_not(module: nn.Module, dtype: torch.dtype) -> str | None:
    if module in _regions and not _regions[module].given_up:
        return "autocast is there already"
    if isinstance(module, torch.jit.ScriptModule):
        return "a scripted module decides its precision itself"
    dtypes = {parameter.dtype for parameter in module.parameters()}
    if not dtypes:
        return f"{type(module).__name__} has no parameters"
    if dtypes & set(_HALF):
        return "weights are in half precision already"
    if any(found.is_complex for found in dtypes):
        return "the model has complex parameters"
    if torch.float32 not in dtypes:
        return f"the parameters are {', '.join(sorted(map(str, dtypes)))}, and autocast changes float32 only"
    if not _has_products(module):
        return "the model has no weights of matrix products or convolutions"
    return _device_reason(_device_type(module), dtype)


def _has_products(module: nn.Module) -> bool:
    """Autocast acts on products; a table that is looked up takes no part in one."""
    tables = {id(table.weight) for table in module.modules() if isinstance(table, nn.Embedding | nn.EmbeddingBag)}
    shared = {id(layer.weight) for layer in module.modules() if isinstance(layer, nn.Linear)}
    return any(p.dim() >= 2 and (id(p) not in tables or id(p) in shared) for p in module.parameters())


def _device_reason(device_type: str, dtype: torch.dtype) -> str | None:
    if device_type not in ("cpu", "cuda"):
        return f"not tried on {device_type} devices"
    one = torch.ones(1, 1, device=device_type)
    with torch.autocast(device_type, dtype=dtype):
        product = one @ one
    return None if product.dtype is dtype else f"autocast to {dtype} does nothing on this {device_type}"


def _device_type(module: nn.Module) -> str:
    return next(module.parameters()).device.type


def _cache_loses_gradients() -> bool:
    """Does this torch have pytorch#112583 (a cast made under no_grad is reused, and the weight gets no gradient)?"""
    weight, one = torch.ones(1, 1, requires_grad=True), torch.ones(1, 1)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        with torch.no_grad():
            one @ weight
        return not (one @ weight).requires_grad


def _why_no_scaling(site: Site) -> str | None:
    for found in gc.get_objects():
        if issubclass(type(found), torch.amp.GradScaler) and found.is_enabled():
            return "the script scales its loss itself"
    if any(isinstance(optimizer, torch.optim.LBFGS) for optimizer in site.optimizers.values()):
        return "an optimizer evaluates the loss several times a step (closure)"
    return None


def _proof(regions: list[_Region]) -> str | None:
    calls = sum(region.num_calls for region in regions if not region.given_up)
    return f"{calls} calls in {regions[0].dtype}" if calls else None
