"""Are the weights finite? Asked between blocks of steps, outside of what is timed."""

from collections.abc import Iterable

import torch

_DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def all_finite(tensors: Iterable[torch.Tensor]) -> bool:
    """False when one has a nan or an infinity. One pass over each, without a copy.

    Only plain tensors are looked at: reading a distributed one would wait for ranks that are not asked.
    """
    flags: dict[torch.device, list[torch.Tensor]] = {}
    with torch.no_grad():
        for tensor in tensors:
            if _is_plain(tensor):
                low, high = torch.aminmax(tensor.detach())
                flags.setdefault(tensor.device, []).append(torch.isfinite(low) & torch.isfinite(high))
    return all(bool(torch.stack(found).all()) for found in flags.values())


def _is_plain(tensor: torch.Tensor) -> bool:
    return (
        type(tensor) in (torch.Tensor, torch.nn.Parameter)
        and tensor.layout is torch.strided
        and tensor.dtype in _DTYPES
        and not tensor.is_meta
        and tensor.numel() > 0
    )
