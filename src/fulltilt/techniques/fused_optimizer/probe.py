"""Asks an optimizer's own class whether it can step these parameters by another implementation."""

from __future__ import annotations

import copy
import inspect
import os
import sys
import warnings
from collections import defaultdict
from collections.abc import Callable
from types import FrameType
from typing import Any

import torch
from torch.optim.optimizer import _default_to_fused_or_foreach

Group = dict[str, Any]
_COMPILED_CALL = os.path.join("torch", "_dynamo", "eval_frame.py")
"""The file whose functions stand between a call of compiled code and that code."""


def implementing_class(optimizer: torch.optim.Optimizer) -> type | None:
    """The class of torch.optim that this optimizer is, or inherits from without a step of its own."""
    cls = type(optimizer)
    base = next((base for base in cls.__mro__ if base.__module__.startswith("torch.optim")), None)
    if base is None or base is torch.optim.Optimizer:
        return None
    return base if _plain_step(cls) is _plain_step(base) else None


def why_not(optimizer: torch.optim.Optimizer, implementation: str) -> str | None:
    """Why `implementation` is not for this optimizer; None when a trial step of the same kinds went well."""
    cls: Any = implementing_class(optimizer)
    if cls is None:
        return "not a torch.optim optimizer, or with a step() of its own"
    if implementation not in inspect.signature(cls.__init__).parameters:
        return f"{cls.__name__} has no {implementation} implementation"
    if _is_inside_compiled_code():
        return "the script compiles its step"
    return (
        _used_already(optimizer, implementation)
        or _tensor_reason(optimizer)
        or _failure_of_trial_step(optimizer, cls, implementation)
    )


def step_namespace(cls: Any) -> dict[str, Any]:
    """The globals in which `step` of this class finds its implementations."""
    namespace: dict[str, Any] = inspect.unwrap(cls.step).__globals__
    return namespace


def implementation_name(cls: Any, implementation: str) -> str:
    """The name of the function there: `_fused_adam`, `_multi_tensor_sgd`."""
    family = step_namespace(cls)["__name__"].rpartition(".")[2].lstrip("_")
    return f"{'_fused' if implementation == 'fused' else '_multi_tensor'}_{family}"


def _plain_step(cls: Any) -> Callable[..., Any]:
    """`step` without the wrappers that torch puts around it when an optimizer is made."""
    step: Callable[..., Any] = inspect.unwrap(cls.step)
    return step


def _is_inside_compiled_code() -> bool:
    """Does `torch.compile` run the code that makes this step? Asked in the step itself."""
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        if frame.f_code.co_filename.endswith(_COMPILED_CALL):
            return True
        frame = frame.f_back
    return False


def _used_already(optimizer: torch.optim.Optimizer, implementation: str) -> str | None:
    groups = optimizer.param_groups
    if all(group.get("fused") for group in groups):
        return "the script has it fused already"
    if any(group.get("differentiable") for group in groups):
        return "the script differentiates through the step"
    if implementation == "foreach" and all(_steps_by_foreach(group) for group in groups):
        return "it steps by foreach already"
    return None


def _steps_by_foreach(group: Group) -> bool:
    if group.get("foreach") is None and not group.get("fused"):
        return _default_to_fused_or_foreach(group["params"], differentiable=False)[1]
    return bool(group.get("foreach"))


def _tensor_reason(optimizer: torch.optim.Optimizer) -> str | None:
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    if not gradients:
        return "no parameter has a gradient"
    if any(gradient.layout is not torch.strided for gradient in gradients):
        return "sparse gradients"
    if any(parameter.is_complex() for parameter in parameters):
        return "complex parameters"
    for parameter in parameters:
        if type(parameter) not in (torch.Tensor, torch.nn.Parameter):
            return f"parameters of class {type(parameter).__name__}"
    return None


def _failure_of_trial_step(optimizer: torch.optim.Optimizer, cls: Any, implementation: str) -> str | None:
    """Make one step of a throw-away optimizer with tiny parameters of the same kinds and the same settings."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            trial = _throw_away(optimizer, cls, implementation)
            step = cls.step.__wrapped__ if getattr(cls.step, "hooked", False) else cls.step
            step(trial)
        except Exception as error:
            return f"{implementation} fails: {type(error).__name__}: {error}"
    return f"{implementation} warns: {caught[0].message}" if caught else None


def _throw_away(optimizer: torch.optim.Optimizer, cls: Any, implementation: str) -> Any:
    """Made without `__init__`, so that nobody who watches the making of optimizers (or their steps) sees it."""
    trial = cls.__new__(cls)
    state: defaultdict[torch.Tensor, Any] = defaultdict(dict)
    groups = [_tiny_group(group, optimizer.state, state, implementation) for group in optimizer.param_groups]
    trial.__setstate__({"defaults": copy.copy(optimizer.defaults), "state": state, "param_groups": groups})
    return trial


def _tiny_group(group: Group, state_of: Any, tiny_state: dict[torch.Tensor, Any], implementation: str) -> Group:
    settings = {key: value for key, value in group.items() if key not in ("params", "param_names")}
    settings = {key: v.detach().clone() if isinstance(v, torch.Tensor) else v for key, v in settings.items()}
    kinds = {(p.dtype, p.device, p.numel() == 1, None if p.grad is None else p.grad.dtype): p for p in group["params"]}
    parameters = []
    for parameter in kinds.values():
        tiny = _tiny(parameter)
        parameters.append(tiny)
        if parameter in state_of:
            tiny_state[tiny] = {key: _tiny_value(key, v, parameter) for key, v in state_of[parameter].items()}
            _place_step(tiny_state[tiny], tiny, implementation)
    return {**settings, "params": parameters, **flags_of(implementation)}


def flags_of(implementation: str) -> dict[str, bool]:
    """The flags in a parameter group that choose `implementation`."""
    return {"fused": implementation == "fused", "foreach": implementation == "foreach"}


def _tiny(parameter: torch.Tensor) -> torch.Tensor:
    shape = parameter.shape if parameter.numel() == 1 else (2,)
    tiny = torch.ones(shape, dtype=parameter.dtype, device=parameter.device)
    if parameter.grad is not None:
        tiny.grad = torch.ones(shape, dtype=parameter.grad.dtype, device=parameter.grad.device)
    return tiny


def _tiny_value(key: str, value: Any, parameter: torch.Tensor) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    return value.detach().clone() if key == "step" or value.numel() == 1 else value.new_ones(2)


def _place_step(state: dict[str, Any], parameter: torch.Tensor, implementation: str) -> None:
    if implementation == "fused" and isinstance(state.get("step"), torch.Tensor):
        state["step"] = state["step"].to(device=parameter.device, dtype=torch.float32)
