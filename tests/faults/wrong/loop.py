"""Faults of the loop: late ones, and such that a loss hides."""

from __future__ import annotations

import torch

from faults.change import fault
from faults.wrong.stretching import stretch_steps
from fulltilt.technique import Stage

LONG = 40


@fault("transformer", num_steps=LONG, shown_by=("losses", "gradient norms"), names="step 3")
def wrong_from_step_thirty_on(site):
    """All is right for thirty steps; then one gradient is lost."""
    (model,) = site.modules.values()
    steps = [0]
    site.after_step(lambda num_steps: steps.__setitem__(0, num_steps))

    def lose(optimizer):
        if steps[0] >= 30:
            model.blocks[0].up.weight.grad.zero_()

    site.before_optimizer_step(lose)


@fault("perceptron", num_steps=LONG, shown_by=("losses", "updates, scale"), names="step [34]|long")
def learning_rate_lost_at_step_thirty(site):
    """After thirty steps the weights stand still."""
    stretch_steps(site, lambda step: 0.0 if step > 30 else 1.0)


@fault("images", shown_by="steps", names="ended after")
def ends_early(site):
    """The script ends without a word after five steps."""

    def end(num_steps):
        if num_steps == 5:
            raise SystemExit(0)

    site.after_step(end)


@fault(
    "images",
    stage=Stage.STEP,
    shown_by=("optimizer steps", "updates, scale", "number of losses"),
    names="executed|long",
)
def step_made_twice(site):
    """One update is made twice with the same gradients."""
    (optimizer,) = site.optimizers.values()
    step = type(optimizer).step
    calls = [0]

    def twice(self, closure=None):
        calls[0] += 1
        if calls[0] == 3:
            step.__wrapped__(self, closure)
        return step(self, closure)

    type(optimizer).step = twice


@fault("perceptron", shown_by=("losses", "number of losses"), names="step 3")
def loss_of_another_batch(site):
    """From the third step on the loss is that of the second batch: a graph with a static input that is not refilled."""
    kept: list = []

    def wrapper(call, args, kwargs):
        kept.append(args[0])
        return call(kept[min(1, len(kept) - 1)], **kwargs)

    site.around(next(iter(site.modules.values())), wrapper)


@fault(
    "adversarial", stage=Stage.MODEL, shown_by=("values of inputs", "losses", "first gradients, each"), names="step|0"
)
def stale_output(site):
    """The generator's output is that of the step before, as from a buffer that a graph writes over."""
    model = next(iter(site.modules.values()))
    if type(model[0]).__name__ != "Linear" or model[0].in_features != 8:
        return
    kept: list = []

    def wrapper(call, args, kwargs):
        output = call(*args, **kwargs)
        kept.append(output.detach().clone())
        return output + (kept[-2 if len(kept) > 1 else -1] - output).detach()

    site.around(model, wrapper)


@fault("transformer", shown_by=("updates, scale", "updates, each", "losses"), names="long|step")
def steps_two_percent_too_long(site):
    """Every step is two percent too long, by a technique that claims float32."""
    stretch_steps(site, lambda step: 1.02)


@fault(
    "accumulation",
    stage=Stage.ENV,
    shown_by=("losses", "updates, scale"),
    names="step 2",
)
def accumulates_twice_as_long(site):
    """An update is made after eight micro-batches instead of four: every other call of step is swallowed."""
    step, zero = torch.optim.AdamW.step, torch.optim.Optimizer.zero_grad
    calls = [0]

    def sometimes(optimizer, closure=None):
        calls[0] += 1
        return None if calls[0] % 2 else step(optimizer, closure)

    torch.optim.AdamW.step = sometimes
    torch.optim.Optimizer.zero_grad = lambda self, set_to_none=True: None if calls[0] % 2 else zero(self, set_to_none)
