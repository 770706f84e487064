"""What a module's forward leaves in its attributes and buffers is float32 for the script, as what it returns is.

Auxiliary losses and logs read such tensors (`model.last_features`), and a buffer that is assigned anew would be saved
in half precision.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from fulltilt.numerics.nested import map_tensors, tensors_in

_MAX_ITEMS = 64
"""Longer containers are data, not results."""
_NOT_RESULTS = frozenset(vars(nn.Module())) - {"_buffers"}


class Leftovers:
    """The places where a module leaves tensors of `dtype`; found after its first calls, put into float32 after each."""

    def __init__(self, module: nn.Module, dtype: torch.dtype) -> None:
        self._module = weakref.ref(module)
        self._dtype = dtype
        self._own = {place for place, _ in self._places()}
        """What is in half precision by the script's own doing."""
        self._found: dict[tuple[int, str], tuple[weakref.ref[nn.Module], str]] = {}

    def find(self) -> None:
        """Look for places after a call, and put them into float32."""
        for place, owner in self._places():
            if place not in self._own:
                self._found[place] = (weakref.ref(owner), place[1])
        self.put_into_float32()

    def put_into_float32(self) -> None:
        for reference, name in self._found.values():
            owner = reference()
            if owner is not None:
                holder: dict[str, Any] = owner._buffers if name in owner._buffers else vars(owner)
                if name in holder:
                    holder[name] = self._in_float32(holder[name])

    def _in_float32(self, value: Any) -> Any:
        mapped = map_tensors(value, lambda tensor: tensor.float() if tensor.dtype is self._dtype else tensor)
        if mapped is not value and isinstance(value, list):
            value[:] = mapped  # the script may hold it, too
            return value
        if mapped is not value and isinstance(value, dict):
            value.update(mapped)
            return value
        return mapped

    def _places(self) -> Iterator[tuple[tuple[int, str], nn.Module]]:
        module = self._module()
        for owner in module.modules() if module is not None else ():
            attributes = {name: value for name, value in vars(owner).items() if name not in _NOT_RESULTS}
            for name, value in {**attributes, **owner._buffers}.items():
                if any(tensor.dtype is self._dtype for tensor in _few_tensors_in(value)):
                    yield (id(owner), name), owner


def _few_tensors_in(value: Any) -> list[torch.Tensor]:
    if isinstance(value, list | tuple | dict) and len(value) > _MAX_ITEMS:
        return []
    return tensors_in(value) if isinstance(value, torch.Tensor | list | tuple | dict) else []
