"""What a module's forward leaves in its attributes and buffers, put into the form in which the script would find it.

Auxiliary losses and logs read such tensors (`model.last_features`), and a buffer that is assigned anew would be saved
as it is. A technique changes what a module returns back into the script's form; this does the same for the rest.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn

from fulltilt.numerics.nested import map_tensors, tensors_in

_MAX_ITEMS = 64
"""Longer containers are data, not results."""
_NOT_RESULTS = frozenset(vars(nn.Module())) - {"_buffers"}
Place = tuple[int, str]


class Leftovers:
    """The places where a module leaves tensors in a form of ours; found after its first calls, put right after each."""

    def __init__(
        self,
        module: nn.Module,
        is_ours: Callable[[torch.Tensor], bool],
        put_right: Callable[[torch.Tensor], torch.Tensor],
    ) -> None:
        self._module = weakref.ref(module)
        self._is_ours, self._put_right_one = is_ours, put_right
        self._own = {place for place, _ in self._places()}
        """Where there are such tensors before any call: that is the script's own doing."""
        self._found: dict[Place, weakref.ref[nn.Module]] = {}

    def find(self) -> None:
        """Look for places after a call, and put what is there right."""
        self._found.update({place: weakref.ref(owner) for place, owner in self._places() if place not in self._own})
        self.put_right()

    def put_right(self) -> None:
        """After a call."""
        for (_, name), reference in self._found.items():
            owner = reference()
            if owner is not None:
                holder: dict[str, Any] = owner._buffers if name in owner._buffers else vars(owner)
                if name in holder:
                    holder[name] = self._value_put_right(holder[name])

    def _value_put_right(self, value: Any) -> Any:
        mapped = map_tensors(value, lambda tensor: self._put_right_one(tensor) if self._is_ours(tensor) else tensor)
        if mapped is not value and isinstance(value, list):
            value[:] = mapped  # the script may hold it, too
            return value
        if mapped is not value and isinstance(value, dict):
            value.update(mapped)
            return value
        return mapped

    def _places(self) -> Iterator[tuple[Place, nn.Module]]:
        module = self._module()
        for owner in module.modules() if module is not None else ():
            attributes = {name: value for name, value in vars(owner).items() if name not in _NOT_RESULTS}
            for name, value in {**attributes, **owner._buffers}.items():
                if any(self._is_ours(tensor) for tensor in _few_tensors_in(value)):
                    yield (id(owner), name), owner


def _few_tensors_in(value: Any) -> list[torch.Tensor]:
    if isinstance(value, list | tuple | dict) and len(value) > _MAX_ITEMS:
        return []
    return tensors_in(value) if isinstance(value, torch.Tensor | list | tuple | dict) else []
