"""Faults in modules: what they are, what they hold, how often they run."""

from __future__ import annotations

import copy

import torch
from torch import nn
from torch.nn import functional as F

from faults.change import fault
from fulltilt.technique import Stage


@fault("perceptron", shown_by=("counting buffers", "buffers"), names="3.num_batches_tracked")
def batch_norm_counted_twice(site):
    """BatchNorm sees every batch twice, as under a careless recomputation."""
    (model,) = site.modules.values()

    def wrapper(call, args, kwargs):
        with torch.no_grad():
            model.forward(*args)
        return call(*args, **kwargs)

    site.around(model, wrapper)


@fault("perceptron", shown_by="buffers", names="3.running_")
def batch_norm_frozen(site):
    """The running statistics of one BatchNorm stand still; its count goes on."""
    (model,) = site.modules.values()
    model[3].momentum = 0.0


@fault("images", stage=Stage.ENV, shown_by="buffers", names="running_var")
def batch_norm_biased(site):
    """The running variance takes the biased estimate of a batch."""
    norm = F.batch_norm

    def biased(input, mean, var, weight=None, bias=None, training=False, momentum=0.1, eps=1e-5):
        output = norm(input, mean, var, weight, bias, training, momentum, eps)
        if training:
            count = input.numel() / input.shape[1]
            with torch.no_grad():
                batch_var = input.transpose(0, 1).flatten(1).var(1)
                var.data.add_(momentum * batch_var * ((count - 1) / count - 1))
        return output

    F.batch_norm = biased


@fault("transformer", shown_by=("tied weights", "state_dict", "parameters"), names="head.weight")
def weights_untied(site):
    """The head gets a weight of its own."""
    (model,) = site.modules.values()
    model.head.weight = nn.Parameter(model.head.weight.detach().clone())


@fault(
    "perceptron",
    shown_by=("parameters with gradients", "moved parameters"),
    names="10.weight|no gradient|does not move",
)
def parameters_no_longer_in_the_optimizer(site):
    """A layer is replaced by its copy after the optimizer was made."""
    (model,) = site.modules.values()
    model[10] = copy.deepcopy(model[10])


class Wrapped(nn.Module):
    def __init__(self, module):
        super().__init__()
        self._orig_mod = module

    def forward(self, *args):
        return self._orig_mod(*args)


@fault("transformer", shown_by="state_dict", names="blocks.0")
def keys_renamed(site):
    """A block is wrapped, and its keys in the state_dict change with it."""
    (model,) = site.modules.values()
    model.blocks[0] = Wrapped(model.blocks[0])


@fault("transformer", shown_by="state_dict", names="Faster")
def type_changed(site):
    """The model is of another class, which no pickle of the script knows."""
    (model,) = site.modules.values()
    model.__class__ = type("FasterModel", (type(model),), {})


@fault("transformer", shown_by=("losses", "parameters with gradients", "first gradients, each"), names="step|norm")
def norm_skipped(site):
    """The last norm is left out."""
    (model,) = site.modules.values()
    model.norm.forward = lambda hidden: hidden


@fault("transformer", shown_by=("losses", "first gradients, each"), names="step|0")
def epsilon_changed(site):
    """One LayerNorm has another epsilon."""
    (model,) = site.modules.values()
    model.blocks[0].norm1.eps = 1e-3


@fault("transformer", stage=Stage.ENV, shown_by=("losses", "first gradients, each"), names="step|0")
def gelu_approximated(site):
    """GELU is taken by its tanh approximation."""
    gelu = F.gelu
    F.gelu = lambda input: gelu(input, approximate="tanh")


@fault("images", shown_by="modes", names="step [45]")
def evaluation_mode_left_on(site):
    """After the first evaluation the model stays in evaluation mode."""
    (model,) = site.modules.values()
    train = model.train
    model.train = lambda mode=True: model if mode else train(False)


@fault("images", arguments=("--dropout", "0.1"), shown_by="modes", names="dropout")
def one_layer_in_evaluation_mode(site):
    """The dropout alone is in evaluation mode."""
    (model,) = site.modules.values()
    model.dropout.eval()
    model.dropout.train = lambda mode=True: model.dropout


@fault(
    "perceptron", shown_by=("parameters with gradients", "moved parameters", "parameters"), names="0.weight|step|0.bias"
)
def frozen_stem_trained(site):
    """Frozen parameters are trained after all."""
    (model,) = site.modules.values()
    for p in model[0].parameters():
        p.requires_grad_(True)

    @torch.no_grad()
    def train(num_steps):
        for p in model[0].parameters():
            p.sub_(0.01 * p.grad)

    site.after_step(train)


@fault("adversarial", shown_by=("buffers", "losses"), names="parametrizations|step")
def spectral_norm_iterated_twice(site):
    """The power iteration of spectral norm runs twice in a forward pass."""
    for model in site.modules.values():
        for layer in model.modules():
            if hasattr(layer, "n_power_iterations"):
                layer.n_power_iterations = 2


@fault("images", shown_by=("counting buffers", "buffers"), names="norm1")
def buffer_replaced(site):
    """A forward pass writes its statistics to a copy of the buffers, which the model does not hold."""
    (model,) = site.modules.values()
    held = dict(model.norm1._buffers)
    model.norm1._buffers.update({name: buffer.clone() for name, buffer in held.items()})
    site.after_step(lambda num_steps: model.norm1._buffers.update(held))
    site.around(
        model,
        lambda call, args, kwargs: (
            model.norm1._buffers.update({name: buffer.clone() for name, buffer in held.items()}),
            call(*args, **kwargs),
        )[1],
    )
