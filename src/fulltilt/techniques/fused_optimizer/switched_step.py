"""One optimizer that steps by another implementation than its groups say."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from fulltilt.techniques.fused_optimizer.probe import flags_of, implementation_name, step_namespace


class SwitchedStep:
    """Sets the flags before each step of the optimizer and takes them back after it."""

    def __init__(
        self, optimizer: torch.optim.Optimizer, cls: type, implementation: str, note: Callable[[str], None]
    ) -> None:
        self.implementation = implementation
        self.class_name = type(optimizer).__name__
        self.proofs: list[str] = []
        """What was seen to run. Whoever asks keeps this list, and not the parameters alive."""
        self._flags = flags_of(implementation)
        self._note = note
        self._own_flags: list[tuple[dict[str, Any], dict[str, Any]]] = []
        self._layouts: list[tuple[torch.Tensor, tuple[int, ...]]] = []
        self._state: Any = None
        self._evidence: _CallEvidence | None = _CallEvidence(
            step_namespace(cls), implementation_name(cls, implementation)
        )
        self._handles = [
            optimizer.register_step_pre_hook(self._before),
            optimizer.register_step_post_hook(self._after),
            optimizer.register_state_dict_pre_hook(lambda _: self._give_flags_back()),
            optimizer.register_state_dict_post_hook(self._as_plain_state),
        ]

    def _before(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        self._give_flags_back()  # a step that raised has left them
        parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        if self._must_adopt(optimizer, parameters):
            self._adopt(optimizer, parameters)
        if not self._fits(parameters):
            return
        for group in optimizer.param_groups:
            own = {key: group[key] for key in self._flags if key in group}  # RMSprop knows nothing of `fused`
            self._own_flags.append((group, own))
            group.update({key: self._flags[key] for key in own})
        if self._evidence is not None:
            self._evidence.watch()

    def _after(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        self._give_flags_back()
        if self._evidence is not None and self._evidence.stop():
            self.proofs.append(f"{self._evidence.name} ran")
            self._evidence = None

    def _give_flags_back(self) -> None:
        for group, own in self._own_flags:
            group.update(own)
        self._own_flags.clear()

    def _must_adopt(self, optimizer: torch.optim.Optimizer, parameters: list[torch.Tensor]) -> bool:
        """Was a checkpoint loaded, a group added, or a parameter laid out anew?"""
        if len(parameters) != len(self._layouts) or self._state is not optimizer.state:
            return True
        known = zip(parameters, self._layouts, strict=True)
        return any(p is not old or p.stride() != stride for p, (old, stride) in known)

    def _adopt(self, optimizer: torch.optim.Optimizer, parameters: list[torch.Tensor]) -> None:
        """Give state that exists already the device and the layout that the implementation needs."""
        self._layouts = [(parameter, parameter.stride()) for parameter in parameters]
        self._state = optimizer.state
        for parameter in parameters:
            if parameter in optimizer.state:
                _fit_state(optimizer.state[parameter], parameter, fused=self.implementation == "fused")

    def _fits(self, parameters: list[torch.Tensor]) -> bool:
        """Fused kernels walk gradient and weight side by side in memory without a look at their strides: on the CPU
        torch 2.13 then applies gradients to the wrong weights. Steps with such gradients keep the plain way."""
        for parameter in parameters:
            gradient = parameter.grad
            if gradient is not None and (
                gradient.layout is not torch.strided or gradient.stride() != parameter.stride()
            ):
                self._note(
                    f"fused_optimizer: {self.class_name} steps the plain way where a gradient is sparse or laid out "
                    "in memory unlike its parameter"
                )
                return False
        return True

    def _as_plain_state(self, optimizer: torch.optim.Optimizer, state_dict: dict[str, Any]) -> None:
        """Checkpoints hold `step` where the script's own implementation keeps it: on the CPU."""
        if self.implementation != "fused":
            return
        keeps = {
            index for group in state_dict["param_groups"] if group.get("capturable") or group.get("fused")
            for index in group["params"]
        }  # fmt: skip
        for index, state in state_dict["state"].items():
            step = state.get("step") if isinstance(state, dict) else None
            if isinstance(step, torch.Tensor) and not step.is_cpu and index not in keeps:
                state_dict["state"][index] = {**state, "step": step.cpu()}


class _CallEvidence:
    """Counts calls of one function, found by name in a namespace, while it watches."""

    def __init__(self, namespace: dict[str, Any], name: str) -> None:
        self.name = name
        self._namespace = namespace
        self._original: Any = None
        self._num_calls = 0

    def watch(self) -> None:
        if self._original is not None:
            return
        original = self._original = self._namespace[self.name]

        def counted(params: Any, *args: Any, **kwargs: Any) -> Any:
            self._num_calls += len(params) > 0
            return original(params, *args, **kwargs)

        self._namespace[self.name] = counted

    def stop(self) -> bool:
        """Stop watching. Was it called?"""
        if self._original is not None:
            self._namespace[self.name] = self._original
            self._original = None
        return self._num_calls > 0


def _fit_state(state: dict[str, Any], parameter: torch.Tensor, *, fused: bool) -> None:
    for key, value in state.items():
        if not isinstance(value, torch.Tensor):
            continue
        if key == "step":
            if fused:
                state[key] = value.to(device=parameter.device, dtype=torch.float32)
        elif value.shape == parameter.shape and value.stride() != parameter.stride():
            state[key] = torch.empty_like(parameter, dtype=value.dtype).copy_(value)
