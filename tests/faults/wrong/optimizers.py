"""Faults of optimizers, schedules and averages of weights."""

from __future__ import annotations

import torch

from faults.change import BFLOAT16, fault
from faults.wrong.stretching import stretch_steps
from fulltilt.technique import Stage


def groups(site):
    return next(iter(site.optimizers.values())).param_groups


@fault("transformer", stage=Stage.OPTIMIZER, shown_by="optimizer state", names="weight_decay")
def weight_decay_default_changed(site):
    """The decay is that of another class's default."""
    groups(site)[0]["weight_decay"] = 0.01


@fault(
    "transformer",
    stage=Stage.OPTIMIZER,
    shown_by=("updates, each", "updates, all", "updates, scale"),
    names="norm|long",
)
def weight_decay_lost(site):
    """Weights do not decay, whatever the settings say."""
    decays = [group["weight_decay"] for group in groups(site)]

    def lose(optimizer):
        for group in optimizer.param_groups:
            group["weight_decay"] = 0.0

    def put_back(num_steps):
        for group, decay in zip(groups(site), decays, strict=True):
            group["weight_decay"] = decay

    lose(next(iter(site.optimizers.values())))
    site.before_optimizer_step(lose)
    site.after_step(put_back)


@fault("transformer", stage=Stage.OPTIMIZER, shown_by="optimizer state", names="group1.weight_decay")
def groups_merged(site):
    """Biases and norms decay as the matrices do."""
    groups(site)[1]["weight_decay"] = 0.1


@fault("perceptron", arguments=("--tensor-lr",), stage=Stage.OPTIMIZER, shown_by="optimizer state", names="lr")
def learning_rate_tensor_turned_float(site):
    """A learning rate that was a tensor is a float."""
    groups(site)[0]["lr"] = float(groups(site)[0]["lr"])


@fault("transformer", shown_by=("updates, scale", "updates, each"), names="long|norm")
def steps_too_long(site):
    """Every step is a tenth too long, whatever the settings say."""
    stretch_steps(site, lambda step: 1.1)


@fault("transformer", rounding=BFLOAT16, shown_by=("updates, scale", "updates, each"), names="long|norm")
def steps_too_short_in_bfloat16(site):
    """Every step is a tenth too short, in a technique of bfloat16's precision."""
    stretch_steps(site, lambda step: 0.9)


@fault("perceptron", shown_by=("optimizer steps", "updates, scale"), names="executed|long")
def step_left_out(site):
    """One step is not made."""
    calls = [0]
    step = torch.optim.SGD.step

    def sometimes(optimizer, closure=None):
        calls[0] += 1
        return None if calls[0] == 4 else step(optimizer, closure)

    torch.optim.SGD.step = sometimes


@fault("perceptron", stage=Stage.OPTIMIZER, shown_by=("updates, scale", "losses"), names="long|step")
def step_without_effect(site):
    """One step is counted and changes nothing."""
    stretch_steps(site, lambda step: 0.0 if step == 5 else 1.0)


@fault("images", stage=Stage.OPTIMIZER, shown_by="optimizer state", names="eps")
def epsilon_of_adam_changed(site):
    """Adam's epsilon is larger."""
    groups(site)[0]["eps"] = 1e-4


@fault("transformer", stage=Stage.ENV, shown_by=("updates, each", "updates, all"), names="norm")
def decay_no_longer_decoupled(site):
    """AdamW decays through the gradient, as Adam does."""
    adamw = torch.optim.AdamW.step

    def coupled(optimizer, closure=None):
        for group in optimizer.param_groups:
            for p in group["params"]:
                p.grad.add_(p.detach(), alpha=group["weight_decay"])
        decays = [group["weight_decay"] for group in optimizer.param_groups]
        for group in optimizer.param_groups:
            group["weight_decay"] = 0.0
        result = adamw(optimizer, closure)
        for group, decay in zip(optimizer.param_groups, decays, strict=True):
            group["weight_decay"] = decay
        return result

    torch.optim.AdamW.step = coupled


@fault("perceptron", stage=Stage.STEP, shown_by=("updates, scale", "losses"), names="long|step")
def momentum_lost(site):
    """The momentum is emptied after every step."""
    (optimizer,) = site.optimizers.values()

    def empty(num_steps):
        for state in optimizer.state.values():
            state["momentum_buffer"].zero_()

    site.after_step(empty)


@fault("images", stage=Stage.STEP, shown_by="optimizer state", names="exp_avg")
def moments_in_bfloat16(site):
    """Adam's moments are kept in bfloat16."""
    (optimizer,) = site.optimizers.values()

    def convert(num_steps):
        for state in optimizer.state.values():
            for key in ("exp_avg", "exp_avg_sq"):
                state[key] = state[key].bfloat16()

    def back(optimizer):
        for state in optimizer.state.values():
            for key in ("exp_avg", "exp_avg_sq"):
                if key in state:
                    state[key] = state[key].float()

    convert(1)
    site.after_step(convert)
    site.before_optimizer_step(back)


@fault("images", stage=Stage.STEP, shown_by=("updates, each", "losses", "updates, scale"), names="norm|step|long")
def bias_correction_missing(site):
    """Adam believes from the second step on that it has made a thousand."""
    (optimizer,) = site.optimizers.values()
    for state in optimizer.state.values():
        state["step"] += 1000


@fault("accumulation", stage=Stage.ENV, shown_by="optimizer state", names="lr")
def schedule_stepped_by_micro_batch(site):
    """The learning rate warms up per micro-batch, not per update."""
    step = torch.optim.lr_scheduler.LinearLR.step

    def four(scheduler):
        for _ in range(4):
            step(scheduler)

    torch.optim.lr_scheduler.LinearLR.step = four


@fault("images", shown_by=("moved held tensors", "held tensors, each"), names="shadow")
def average_of_weights_frozen(site):
    """The script's own average of the weights sees the first weights for ever, as from a wrapper's stale copy."""
    (model,) = site.modules.values()
    stale = {name: value.detach().clone() for name, value in model.state_dict().items()}
    model.state_dict = lambda *args, **kwargs: dict(stale)


@fault("images", stage=Stage.ENV, shown_by=("moved held tensors", "held tensors, each"), names="averaged")
def average_of_weights_not_updated(site):
    """torch's AveragedModel is not updated any more."""
    from torch.optim import swa_utils

    swa_utils.AveragedModel.update_parameters = lambda self, model: self.n_averaged.add_(1)


@fault("adversarial", shown_by=("moved held tensors", "held tensors, each"), names="averaged")
def average_of_generator_half_updated(site):
    """The moving average of the generator moves by half of what it should."""
    lerp = torch.Tensor.lerp_
    torch.Tensor.lerp_ = lambda self, end, weight: lerp(self, end, 0.005 if weight == 0.01 else weight)


@fault(
    "adversarial",
    stage=Stage.OPTIMIZER,
    shown_by=("optimizer steps", "updates, each"),
    names="Adam#1|maker|Sequential#0",
)
def second_optimizer_silent(site):
    """The second optimizer makes every other step only."""
    (optimizer,) = site.optimizers.values()
    made.append(optimizer)
    step, calls = torch.optim.Adam.step, [0]

    def sometimes(self, closure=None):
        calls[0] += 1
        if len(made) > 1 and self is made[1] and calls[0] % 4 == 0:
            return None
        return step(self, closure)

    if len(made) == 2:
        torch.optim.Adam.step = sometimes


made: list = []
