"""Faults of lower precision."""

from __future__ import annotations

import torch
from torch.func import functional_call
from torch.nn import functional as F

from faults.change import BFLOAT16, FLOAT16, fault
from fulltilt.technique import Stage


@fault("transformer", shown_by=("state_dict", "parameters"), names="bfloat16")
def weights_in_bfloat16(site):
    """The model is converted to bfloat16, without master weights."""
    (model,) = site.modules.values()
    model.bfloat16()


@fault(
    "transformer",
    rounding=BFLOAT16,
    shown_by=("updates, each", "updates, all", "moved parameters"),
    names="blocks|norm",
)
def weights_rounded_to_bfloat16(site):
    """After each step the weights are rounded to bfloat16: small updates vanish."""
    (model,) = site.modules.values()

    @torch.no_grad()
    def round_weights(num_steps):
        for p in model.parameters():
            p.copy_(p.bfloat16())

    site.after_step(round_weights)


@fault("perceptron", rounding=BFLOAT16, shown_by=("losses", "updates, all"), names="step")
def autocast_entered_once(site):
    """Autocast is entered once around the loop: its cache keeps the first weights."""
    torch.autocast("cpu", torch.bfloat16).__enter__()


@fault(
    "transformer",
    rounding=BFLOAT16,
    shown_by=("losses", "first gradients, each", "first gradients, all"),
    names="step|embedding|blocks",
)
def loss_in_float8(site):
    """Logits lose all but two bits of their mantissa before the loss."""
    site.around(
        next(iter(site.modules.values())),
        lambda call, args, kwargs: (out := call(*args, **kwargs)) + (out.to(torch.float8_e5m2).float() - out).detach(),
    )


@fault("transformer", rounding=BFLOAT16, shown_by=("buffers", "losses"), names="positions|step")
def positions_in_float8(site):
    """A table of positions is kept in eight bits."""
    (model,) = site.modules.values()
    model.positions.copy_(model.positions.to(torch.float8_e5m2))


@fault("transformer", shown_by="buffers", names="positions")
def positions_in_bfloat16(site):
    """A table of positions is rounded to bfloat16 by a technique that claims float32."""
    (model,) = site.modules.values()
    model.positions.copy_(model.positions.bfloat16())


@fault("double", shown_by=("losses", "first gradients, each"), names="step 1|0")
def float64_computed_in_float32(site):
    """A float64 model computes in float32; what goes in and out is still float64."""
    (model,) = site.modules.values()

    def wrapper(call, args, kwargs):
        weights = {name: p.float() for name, p in model.named_parameters()}
        return functional_call(model, weights, (args[0].float(),)).double()

    site.around(model, wrapper)


@fault("double", shown_by=("state_dict", "parameters"), names="float32")
def float64_turned_float32(site):
    """A float64 model is converted to float32."""
    (model,) = site.modules.values()
    model.float()
    site.around(model, lambda call, args, kwargs: call(args[0].float()).double())


@fault("transformer", stage=Stage.ENV, shown_by=("losses", "first gradients, each"), names="step|0")
def norms_in_bfloat16(site):
    """LayerNorm computes in bfloat16 by a technique that claims float32."""
    norm = F.layer_norm
    F.layer_norm = lambda input, shape, weight, bias, eps: norm(
        input.bfloat16(), shape, weight.bfloat16(), bias.bfloat16(), eps
    ).to(input)


@fault(
    "scaled", rounding=FLOAT16, stage=Stage.ENV, shown_by=("gradient norms", "first gradients, each"), names="step 1|0"
)
def clipped_before_unscaling(site):
    """Gradients are clipped while they are still scaled: GradScaler.unscale_ comes after it."""
    unscale, step = torch.amp.GradScaler.unscale_, torch.amp.GradScaler.step

    def late(scaler, optimizer, *args, **kwargs):
        unscale(scaler, optimizer)
        return step(scaler, optimizer, *args, **kwargs)

    torch.amp.GradScaler.unscale_ = lambda self, optimizer: None
    torch.amp.GradScaler.step = late


@fault(
    "scaled",
    rounding=FLOAT16,
    stage=Stage.ENV,
    shown_by=("finite values", "optimizer steps"),
    names="step 3|end|executed",
)
def overflow_applied(site):
    """A step whose gradients are infinite is made, not left out."""
    torch.amp.GradScaler._maybe_opt_step = lambda self, optimizer, state, *args, **kwargs: optimizer.step(
        *args, **kwargs
    )


@fault(
    "scaled",
    rounding=FLOAT16,
    stage=Stage.ENV,
    shown_by=("gradient norms", "first gradients, scale"),
    names="step|long",
)
def unscaled_twice(site):
    """Gradients are divided by the scale twice."""
    unscale = torch.amp.GradScaler.unscale_

    def twice(scaler, optimizer):
        unscale(scaler, optimizer)
        for group in optimizer.param_groups:
            for p in group["params"]:
                p.grad.div_(scaler.get_scale())

    torch.amp.GradScaler.unscale_ = twice


@fault(
    "scaled",
    rounding=FLOAT16,
    stage=Stage.ENV,
    shown_by=("held tensors", "moved held tensors", "optimizer steps"),
    names="scale|executed",
)
def scale_never_lowered(site):
    """After an overflow the scale stays where it was."""
    torch.amp.GradScaler.update = lambda self, new_scale=None: self._per_optimizer_states.clear()


@fault("images", rounding=BFLOAT16, shown_by=("finite values",), names="step 5")
def not_a_number_at_step_five(site):
    """The loss is nan from the fifth step on."""
    calls = [0]

    def wrapper(call, args, kwargs):
        calls[0] += torch.is_grad_enabled()
        return call(*args, **kwargs) * (float("nan") if calls[0] >= 5 else 1.0)

    site.around(next(iter(site.modules.values())), wrapper)


@fault("perceptron", shown_by=("losses", "values of inputs", "first gradients, each"), names="step|0")
def matmuls_with_ten_bits(site):
    """Matrix products round their operands as TensorFloat32 does, by a technique that claims float32."""

    def rounded(tensor):
        return tensor + (tensor.half().float() - tensor).detach()

    linear = F.linear
    F.linear = lambda input, weight, bias=None: linear(rounded(input), rounded(weight), bias)
