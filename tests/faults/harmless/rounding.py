"""Changes that round otherwise, and do nothing else."""

from __future__ import annotations

import math

import torch
from torch import nn
from torch.nn import functional as F

from faults.change import BFLOAT16, FLOAT16, harmless
from fulltilt.technique import Stage

real_attention, real_linear, real_layer_norm = F.scaled_dot_product_attention, F.linear, F.layer_norm


def only(mapping):
    (thing,) = mapping.values()
    return thing


def autocast(site, dtype):
    for model in site.modules.values():
        site.around(model, lambda call, args, kwargs: _cast(call, args, kwargs, dtype))


def _cast(call, args, kwargs, dtype):
    with torch.autocast("cpu", dtype):
        output = call(*args, **kwargs)
    return output.float()


def groups(site):
    return only(site.optimizers).param_groups


@harmless("transformer", stage=Stage.OPTIMIZER)
def fused_adamw(site):
    """AdamW in one kernel."""
    for group in groups(site):
        group["fused"] = True


@harmless("transformer", stage=Stage.OPTIMIZER)
def foreach_adamw(site):
    """AdamW over lists of tensors."""
    for group in groups(site):
        group["foreach"] = True


@harmless("perceptron", stage=Stage.OPTIMIZER)
def fused_sgd(site):
    """SGD in one kernel."""
    for group in groups(site):
        group["fused"] = True


@harmless("adversarial", stage=Stage.OPTIMIZER)
def foreach_adam_of_two(site):
    """Both optimizers of a GAN over lists of tensors."""
    for optimizer in site.optimizers.values():
        for group in optimizer.param_groups:
            group["foreach"] = True


@harmless("transformer", rounding=BFLOAT16)
def bfloat16_autocast(site):
    """A transformer under bfloat16 autocast."""
    autocast(site, torch.bfloat16)


@harmless("perceptron", rounding=BFLOAT16)
def bfloat16_autocast_of_a_perceptron(site):
    """A perceptron with BatchNorm under bfloat16 autocast."""
    autocast(site, torch.bfloat16)


@harmless("images", rounding=BFLOAT16)
def bfloat16_autocast_of_convolutions(site):
    """A convolutional network under bfloat16 autocast."""
    autocast(site, torch.bfloat16)


@harmless("adversarial", rounding=BFLOAT16)
def bfloat16_autocast_of_a_gan(site):
    """A GAN under bfloat16 autocast."""
    autocast(site, torch.bfloat16)


@harmless("accumulation", rounding=BFLOAT16)
def bfloat16_autocast_under_accumulation(site):
    """Accumulated gradients under bfloat16 autocast."""
    autocast(site, torch.bfloat16)


@harmless("stream", rounding=BFLOAT16)
def bfloat16_autocast_of_a_regression(site):
    """A regression under bfloat16 autocast."""
    autocast(site, torch.bfloat16)


@harmless("transformer", rounding=FLOAT16)
def float16_autocast(site):
    """A transformer under float16 autocast; nothing is small enough to need a scale."""
    autocast(site, torch.float16)


@harmless("transformer", stage=Stage.ENV)
def attention_by_hand(site):
    """Attention in three plain steps."""

    def attend(query, key, value, attn_mask=None, dropout_p=0.0):
        scores = query @ key.transpose(-1, -2) / math.sqrt(query.shape[-1])
        return scores.masked_fill(~attn_mask, float("-inf")).softmax(-1) @ value

    F.scaled_dot_product_attention = attend


@harmless("transformer", stage=Stage.ENV)
def additive_mask(site):
    """A boolean mask turned into an additive one."""

    def attend(query, key, value, attn_mask=None, dropout_p=0.0):
        mask = torch.zeros(attn_mask.shape).masked_fill(~attn_mask, float("-inf"))
        return real_attention(query, key, value, attn_mask=mask)

    F.scaled_dot_product_attention = attend


@harmless("transformer", stage=Stage.ENV)
def layer_norm_by_hand(site):
    """LayerNorm by its formula."""

    def norm(input, shape, weight=None, bias=None, eps=1e-5):
        centred = input - input.mean(-1, keepdim=True)
        return centred * torch.rsqrt(centred.square().mean(-1, keepdim=True) + eps) * weight + bias

    F.layer_norm = norm


@harmless("transformer", stage=Stage.ENV)
def layer_norm_in_float64(site):
    """LayerNorm in float64."""
    F.layer_norm = lambda input, shape, weight=None, bias=None, eps=1e-5: real_layer_norm(
        input.double(), shape, weight.double(), bias.double(), eps
    ).float()


@harmless("transformer", stage=Stage.ENV)
def gelu_by_erf(site):
    """GELU by its formula."""
    F.gelu = lambda input: input * 0.5 * (1 + torch.erf(input / math.sqrt(2)))


@harmless("transformer", stage=Stage.ENV)
def products_split(site):
    """Matrix products are summed in two halves."""

    def split(input, weight, bias=None):
        half = input.shape[-1] // 2
        output = input[..., :half] @ weight[:, :half].T + input[..., half:] @ weight[:, half:].T
        return output if bias is None else output + bias

    F.linear = split


@harmless("perceptron", stage=Stage.ENV)
def products_reversed(site):
    """Matrix products are summed from the other end."""
    F.linear = lambda input, weight, bias=None: real_linear(input.flip(-1), weight.flip(-1), bias)


@harmless("images")
def channels_last(site):
    """Convolutions with channels last."""
    model = only(site.modules)
    model.to(memory_format=torch.channels_last)
    site.around(model, lambda call, args, kwargs: call(args[0].contiguous(memory_format=torch.channels_last), **kwargs))


@harmless("images", stage=Stage.ENV)
def convolution_unfolded(site):
    """A convolution as a matrix product of unfolded images."""

    def convolve(layer, input, weight, bias):
        columns = F.unfold(input, weight.shape[2:], padding=layer.padding)
        output = (weight.flatten(1) @ columns).unflatten(-1, input.shape[2:])
        return output + bias[:, None, None]

    nn.Conv2d._conv_forward = convolve


@harmless("images", stage=Stage.ENV)
def without_onednn(site):
    """Convolutions without oneDNN."""
    torch.backends.mkldnn.set_flags(False)


@harmless("images", stage=Stage.ENV)
def batch_norm_by_hand(site):
    """BatchNorm by its formula."""

    def norm(input, mean, var, weight=None, bias=None, training=False, momentum=0.1, eps=1e-5):
        dims = [d for d in range(input.dim()) if d != 1]
        shape = [-1 if d == 1 else 1 for d in range(input.dim())]
        if not training:
            return (input - mean.view(shape)) / (var.view(shape) + eps).sqrt() * weight.view(shape) + bias.view(shape)
        batch_mean, batch_var = input.mean(dims), input.var(dims, correction=0)
        count = input.numel() / input.shape[1]
        mean.data.lerp_(batch_mean.detach(), momentum)
        var.data.lerp_(batch_var.detach() * count / (count - 1), momentum)
        normed = (input - batch_mean.view(shape)) * torch.rsqrt(batch_var.view(shape) + eps)
        return normed * weight.view(shape) + bias.view(shape)

    F.batch_norm = norm


@harmless("perceptron", stage=Stage.ENV)
def loss_in_float64(site):
    """The loss in float64."""
    loss = F.cross_entropy
    F.cross_entropy = lambda input, target: loss(input.double(), target).float()


@harmless("transformer", stage=Stage.ENV)
def loss_by_hand(site):
    """The cross entropy by its formula, from the last target to the first."""

    def entropy(input, target, ignore_index=-100):
        kept = (target != ignore_index).nonzero().squeeze(1).flip(0)
        return (input[kept].logsumexp(-1) - input[kept].gather(1, target[kept, None]).squeeze(1)).mean()

    F.cross_entropy = entropy


@harmless("perceptron", stage=Stage.ENV)
def two_threads(site):
    """Two threads instead of one."""
    torch.set_num_threads(2)


@harmless("transformer", stage=Stage.ENV)
def clipped_by_lists(site):
    """Gradients are clipped over lists of tensors."""
    clip = nn.utils.clip_grad_norm_
    nn.utils.clip_grad_norm_ = lambda parameters, max_norm: clip(parameters, max_norm, foreach=True)


@harmless("transformer", stage=Stage.ENV)
def embedding_by_product(site):
    """An embedding as a product with one-hot rows; the row of padding gets no gradient."""

    def embed(input, weight, padding_idx=None, *rest):
        rows = F.one_hot(input, weight.shape[0]).float()
        padding = (input == padding_idx)[..., None]
        return torch.where(padding, (rows @ weight).detach(), rows @ weight)

    F.embedding = embed


@harmless("perceptron", rounding=FLOAT16)
def operands_with_ten_bits(site):
    """Matrix products round their operands as TensorFloat32 does."""

    def rounded(tensor):
        return tensor + (tensor.half().float() - tensor).detach()

    F.linear = lambda input, weight, bias=None: real_linear(rounded(input), rounded(weight), bias)


@harmless("transformer", rounding=BFLOAT16)
def one_layer_in_bfloat16(site):
    """The matrices of one block in bfloat16."""
    block = only(site.modules).blocks[0]
    for layer in (block.up, block.down):
        forward = layer.forward
        layer.forward = lambda hidden, forward=forward: _cast(forward, (hidden,), {}, torch.bfloat16)


@harmless("double", stage=Stage.OPTIMIZER)
def fused_adam_in_float64(site):
    """Adam in one kernel, in float64."""
    for group in groups(site):
        group["fused"] = True


@harmless("double", stage=Stage.ENV)
def float64_products_reversed(site):
    """Matrix products in float64, summed from the other end."""
    F.linear = lambda input, weight, bias=None: real_linear(input.flip(-1), weight.flip(-1), bias)


@harmless("scaled", stage=Stage.OPTIMIZER)
def fused_under_a_scaler(site):
    """AdamW in one kernel under the script's GradScaler, which overflows once."""
    for group in groups(site):
        group["foreach"] = True


@harmless("transformer", stage=Stage.ENV, num_steps=40)
def products_split_for_forty_steps(site):
    """Matrix products are summed in two halves, judged over forty steps."""
    products_split(site)


@harmless("transformer", rounding=BFLOAT16, num_steps=40)
def bfloat16_autocast_for_forty_steps(site):
    """A transformer under bfloat16 autocast, judged over forty steps."""
    autocast(site, torch.bfloat16)


@harmless("images", rounding=BFLOAT16, num_steps=40)
def bfloat16_convolutions_for_forty_steps(site):
    """A convolutional network under bfloat16 autocast, judged over forty steps."""
    autocast(site, torch.bfloat16)
