"""Faults in gradients, from the backward pass to the optimizer."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from faults.change import fault
from fulltilt.technique import Stage

ONE = "blocks.0.up.weight"


def parameter(site: Any, name: str) -> nn.Parameter:
    (model,) = site.modules.values()
    return model.get_parameter(name)


def before_each_step(site: Any, parameter: nn.Parameter, change: Any) -> None:
    site.before_optimizer_step(lambda optimizer: change(parameter))


@fault("transformer", shown_by=("parameters with gradients", "moved parameters"), names=ONE)
def gradient_dropped(site):
    """One parameter gets no gradient."""
    p = parameter(site, ONE)
    site.before_optimizer_step(lambda optimizer: setattr(p, "grad", None))


@fault("transformer", shown_by=("first gradients, each", "updates, each"), names=ONE)
def gradient_zeroed(site):
    """One parameter's gradient is zero."""
    before_each_step(site, parameter(site, ONE), lambda p: p.grad.zero_())


@fault("transformer", shown_by="first gradients, each", names=ONE)
def gradient_doubled(site):
    """One parameter's gradient is doubled."""
    before_each_step(site, parameter(site, ONE), lambda p: p.grad.mul_(2))


@fault("transformer", shown_by="first gradients, each", names=ONE)
def gradient_off_by_a_percent(site):
    """One parameter's gradient is scaled by 1.01."""
    before_each_step(site, parameter(site, ONE), lambda p: p.grad.mul_(1.01))


@fault("perceptron", shown_by=("gradient norms", "first gradients, scale"), names="step 1")
def all_gradients_off_by_a_percent(site):
    """All gradients are scaled by 1.01."""

    def scale(optimizer):
        for group in optimizer.param_groups:
            for p in group["params"]:
                p.grad.mul_(1.01)

    site.before_optimizer_step(scale)


@fault("transformer", shown_by="first gradients, each", names="blocks.1.norm2.weight")
def gradient_turned(site):
    """The gradient of one norm has the wrong sign."""
    before_each_step(site, parameter(site, "blocks.1.norm2.weight"), lambda p: p.grad.neg_())


@fault("perceptron", shown_by=("gradient norms", "updates, each"), names="step")
def gradients_never_zeroed(site):
    """zero_grad does nothing, so that gradients pile up."""
    torch.optim.Optimizer.zero_grad = lambda self, set_to_none=True: None


@fault("perceptron", shown_by=("first gradients, all", "updates, all"), names="%|of their norm")
def gradients_a_step_late(site):
    """Each update is made with the gradients of the step before."""
    kept: dict[int, torch.Tensor] = {}

    def delay(optimizer):
        for group in optimizer.param_groups:
            for p in group["params"]:
                new = p.grad.clone()
                p.grad.copy_(kept.get(id(p), torch.zeros_like(new)))
                kept[id(p)] = new

    site.before_optimizer_step(delay)


@fault("accumulation", shown_by=("gradient norms", "losses"), names="step 1")
def loss_averaged_twice(site):
    """The loss of a micro-batch is divided by the number of micro-batches a second time."""

    def wrapper(call, args, kwargs):
        tensors = args[0]
        return call((tensors[0] / 4,) if isinstance(tensors, tuple) else tensors / 4, *args[1:], **kwargs)

    site.around_backward(wrapper)


@fault("accumulation", shown_by="number of losses", names="step 1")
def micro_batch_lost(site):
    """Every fourth micro-batch is not differentiated."""
    calls = [0]

    def wrapper(call, args, kwargs):
        calls[0] += 1
        return None if calls[0] % 4 == 0 else call(*args, **kwargs)

    backward = torch.Tensor.backward
    torch.Tensor.backward = lambda tensor, *args, **kwargs: wrapper(backward, (tensor, *args), kwargs)


@fault("accumulation", shown_by=("gradient norms", "first gradients, all", "first gradients, scale"), names="step|norm")
def micro_batch_counted_twice(site):
    """One micro-batch of four is differentiated twice."""
    calls = [0]

    def wrapper(call, args, kwargs):
        calls[0] += 1
        if calls[0] % 4 == 1:
            call(args[0], None, True)
        return call(*args, **kwargs)

    site.around_backward(wrapper)


@fault("transformer", stage=Stage.ENV, shown_by=("gradient norms", "first gradients, scale"), names="step|long")
def clipping_lost(site):
    """Gradients are not clipped."""
    nn.utils.clip_grad_norm_ = lambda parameters, max_norm, *args, **kwargs: torch.tensor(0.0)


@fault("accumulation", stage=Stage.ENV, shown_by=("gradient norms", "first gradients, each"), names="step|0")
def clipping_by_parameter(site):
    """Each gradient is clipped by itself, instead of all together."""
    clip = nn.utils.clip_grad_norm_

    def each(parameters, max_norm, *args, **kwargs):
        return max(clip([p], max_norm) for p in parameters)

    nn.utils.clip_grad_norm_ = each


@fault("transformer", stage=Stage.ENV, shown_by=("first gradients, each", "updates, each"), names="embedding.weight")
def padding_gets_a_gradient(site):
    """The embedding of padding is trained, as if padding_idx were not there."""
    embed = torch.nn.functional.embedding
    torch.nn.functional.embedding = lambda input, weight, padding_idx=None, *rest: embed(input, weight, None, *rest)


@fault("perceptron", shown_by=("parameters with gradients", "moved parameters"), names="2.weight")
def input_detached(site):
    """The graph is cut behind the first trained layer, as by reentrant checkpoints after a frozen stem."""
    (model,) = site.modules.values()
    model[2].register_forward_hook(lambda layer, args, output: output.detach())


@fault("images", shown_by="first gradients, each", names="second.weight")
def backward_of_one_layer_in_bfloat16(site):
    """One layer's weight gradient is rounded to bfloat16, by a technique that claims float32."""
    (model,) = site.modules.values()
    model.second.weight.register_hook(lambda gradient: gradient.bfloat16().float())


@fault("perceptron", shown_by=("gradient norms", "updates, scale", "losses"), names="step|norm|long")
def backward_made_twice(site):
    """Every backward call is made twice."""
    site.around_backward(lambda call, args, kwargs: (call(args[0], None, True), call(*args, **kwargs))[1])
