"""Dynamic loss scaling for float16 that the script does not see: every gradient it can read is the true one.

`backward` starts from gradients multiplied by the scale; a hook on each leaf divides what arrives, in the leaf's own
precision, before it is added to `.grad`. So clipping, logging and accumulation in the script work on true gradients.
The scale follows the rules of `torch.amp.GradScaler`, but begins lower.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch.utils.hooks import unserializable_hook
from torch.utils.weak import WeakIdKeyDictionary

from fulltilt.technique import Site

INITIAL_SCALE = 1024.0
"""Lower than GradScaler's 65536, with which the first steps of many scripts overflow and are skipped: a skipped step
is a difference to the untouched script, a lower scale hardly is."""
GROWTH_FACTOR = 2.0
BACKOFF_FACTOR = 0.5
GROWTH_INTERVAL = 2000


class LossScaling:
    """The scale of a process, and the hooks that undo it."""

    _process: weakref.ref[LossScaling] | None = None

    def __init__(self, site: Site) -> None:
        self.scale = INITIAL_SCALE
        self.num_skipped = 0
        self.given_up = ""
        """Why the models are to go on in float32."""
        self._site = site
        self._stepping: weakref.ref[torch.optim.Optimizer] | None = None
        self._noticed: weakref.WeakSet[torch.optim.Optimizer] = weakref.WeakSet()
        self._watched = WeakIdKeyDictionary()
        self._depth = 0
        self._good_steps = 0
        self._overflowed = False
        self._scale_of_the_script: Any = torch.amp.GradScaler.scale
        torch.amp.GradScaler.scale = self._watching(self._scale_of_the_script)  # type: ignore[method-assign]
        site.around_backward(self.backward)
        site.before_optimizer_step(self.before_step)
        site.after_step(self.after_step)

    @classmethod
    def of_process(cls, site: Site) -> LossScaling:
        """The one of this process: all roots share a scale, as one backward may pass through all of them."""
        scaling = cls._process() if cls._process is not None else None
        if scaling is None:
            scaling = cls(site)
            cls._process = weakref.ref(scaling)
        return scaling

    @classmethod
    def forget(cls) -> None:
        """Start afresh with the next site; torch as it was."""
        scaling = cls._process() if cls._process is not None else None
        if scaling is not None:
            torch.amp.GradScaler.scale = scaling._scale_of_the_script  # type: ignore[method-assign]
        cls._process = None

    def watch(self, leaves: Iterable[torch.Tensor]) -> None:
        """Divide the gradients that arrive at `leaves` by the scale."""
        for leaf in leaves:
            if leaf.requires_grad and leaf not in self._watched:
                self._watched[leaf] = leaf.register_hook(self._unscale_hook())

    def backward(self, call: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The call with its first gradients scaled. A backward inside a backward is in scaled values already."""
        self.look_for_closure()
        if self._depth or self.scale == 1.0:
            return call(*args, **kwargs)
        tensors, gradients, args, kwargs = _taken_apart(args, kwargs)
        self.watch(_leaves_below(tensors))  # also leaves that no module holds: a bare Parameter, an input
        self._depth += 1
        try:
            return call(tensors, self._scaled(tensors, gradients), *args, **kwargs)
        finally:
            self._depth -= 1

    def _watching(self, original: Any) -> Any:
        """A scaler that the script makes later: two of them would wait for each other after an overflow."""

        def scale(scaler: Any, outputs: Any) -> Any:
            if scaler.is_enabled() and not self.given_up:
                self._stop("the script scales its loss itself")
            return original(scaler, outputs)

        return scale

    def look_for_closure(self) -> None:
        """Stop when an optimizer is in the middle of its step: it computes the loss itself, and what overflows there
        would be in the weights."""
        if self._stepping is not None and not self.given_up:
            self._stop("an optimizer computes the loss inside of its step (closure), where overflows cannot be skipped")

    def before_step(self, optimizer: torch.optim.Optimizer) -> None:
        """Let the step of `optimizer` do nothing when its gradients are not finite."""
        if self.given_up:
            return
        if isinstance(optimizer, torch.optim.LBFGS):
            self._stop("an L-BFGS optimizer needs exact values of the loss")
            return
        self._step_begins(optimizer)
        parameters = [p for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
        if not parameters or _all_finite([p.grad for p in parameters]):
            return
        self._overflowed = True
        self.num_skipped += 1
        if self.scale * BACKOFF_FACTOR < 1.0:
            self._culprit = self._first_not_finite(parameters)
        _hide_gradients(optimizer, parameters)

    def after_step(self, num_steps: int) -> None:
        """Follow GradScaler: back off after an overflow, grow after many steps without one."""
        if self._overflowed:
            self.scale *= BACKOFF_FACTOR
            self._good_steps, self._overflowed = 0, False
            if self.scale < 1.0:
                self._stop(f"the gradient of {self._culprit} is not finite at any loss scale")
            return
        self._good_steps += 1
        if self._good_steps >= GROWTH_INTERVAL and self.scale > 1.0:
            self.scale *= GROWTH_FACTOR
            self._good_steps = 0

    def _unscale_hook(self) -> Callable[[torch.Tensor], torch.Tensor | None]:
        def unscale(gradient: torch.Tensor) -> torch.Tensor | None:
            return gradient / self.scale if self._depth else None

        unserializable_hook(unscale)  # the parameter is saved without it, and without a warning
        return unscale

    def _scaled(self, tensors: tuple[torch.Tensor, ...], gradients: Any) -> list[torch.Tensor | None]:
        given = [gradients] if isinstance(gradients, torch.Tensor) else gradients
        given = [None] * len(tensors) if given is None else list(given)
        return [self._scaled_one(tensor, gradient) for tensor, gradient in zip(tensors, given, strict=True)]

    def _scaled_one(self, tensor: torch.Tensor, gradient: torch.Tensor | None) -> torch.Tensor | None:
        if gradient is not None:
            return gradient * self.scale
        if tensor.numel() == 1 and tensor.requires_grad:
            return torch.full_like(tensor, self.scale)
        return None  # torch then raises its own error

    _culprit = "a parameter"

    def _first_not_finite(self, parameters: list[torch.Tensor]) -> str:
        names = {
            id(p): f"{root}.{n}" for root, module in self._site.modules.items() for n, p in module.named_parameters()
        }
        bad = (p for p in parameters if not _all_finite([p.grad]))
        return next((names.get(id(parameter), "a parameter") for parameter in bad), "a parameter")

    def _step_begins(self, optimizer: torch.optim.Optimizer) -> None:
        """A backward pass until the step's end is that of a closure."""
        self._stepping = weakref.ref(optimizer)
        if optimizer not in self._noticed:
            self._noticed.add(optimizer)
            optimizer.register_step_post_hook(self._step_ended)

    def _step_ended(self, *_: Any) -> None:
        self._stepping = None

    def _stop(self, reason: str) -> None:
        self.scale = 1.0
        self.given_up = reason


def _taken_apart(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any, tuple[Any, ...], dict[str, Any]]:
    """Tensors, their gradients and the rest of the arguments of `torch.autograd.backward`."""
    kwargs = dict(kwargs)
    tensors = args[0] if args else kwargs.pop("tensors")
    gradients = args[1] if len(args) > 1 else kwargs.pop("grad_tensors", None)
    tensors = (tensors,) if isinstance(tensors, torch.Tensor) else tuple(tensors)
    return tensors, gradients, args[2:], kwargs


def _leaves_below(tensors: Iterable[torch.Tensor]) -> list[torch.Tensor]:
    """The leaves that a backward from `tensors` would reach."""
    todo: list[Any] = [tensor.grad_fn for tensor in tensors]
    seen: set[Any] = {None}
    leaves = []
    while todo:
        node = todo.pop()
        if node in seen:
            continue
        seen.add(node)
        if hasattr(node, "variable"):
            leaves.append(node.variable)
        todo.extend(parent for parent, _ in node.next_functions)
    return leaves


def _all_finite(gradients: list[torch.Tensor | None]) -> bool:
    """Largest absolute values say it: nan and inf survive a maximum. One wait for the device."""
    values = [g.coalesce().values() if g.layout is torch.sparse_coo else g for g in gradients if g is not None]
    norms = torch._foreach_norm([value for value in values if value.numel()], ord=math.inf)
    return not norms or bool(torch.stack([norm.double().cpu() for norm in norms]).isfinite().all())


def _hide_gradients(optimizer: torch.optim.Optimizer, parameters: list[torch.Tensor]) -> None:
    """Take the gradients away for one step, so that it changes neither weights nor state, and give them back."""
    gradients = [parameter.grad for parameter in parameters]
    for parameter in parameters:
        parameter.grad = None

    def give_back(*_: Any) -> None:
        handle.remove()
        for parameter, gradient in zip(parameters, gradients, strict=True):
            if parameter.grad is None:
                parameter.grad = gradient

    handle = optimizer.register_step_post_hook(give_back)
