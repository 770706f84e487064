"""Tensors inside what a module takes and returns."""

import copy
import dataclasses
from collections.abc import Callable
from typing import Any

import torch


def map_tensors(value: Any, function: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """`value` with `function` applied to each tensor in it; every container keeps its type.

    Looks into tuples, named tuples, lists, dicts and dataclasses, and their subclasses (`ModelOutput` of transformers
    is a dict and a dataclass). Where nothing changes the very same object comes back, and no container is changed in
    place.
    """
    if isinstance(value, torch.Tensor):
        return function(value)
    if isinstance(value, tuple | list):
        return _map_sequence(value, function)
    if isinstance(value, dict):
        return _map_dict(value, function)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return _map_dataclass(value, function)
    return value


def tensors_in(value: Any) -> list[torch.Tensor]:
    """The tensors that `map_tensors` would meet, in order."""
    found: list[torch.Tensor] = []

    def collect(tensor: torch.Tensor) -> torch.Tensor:
        found.append(tensor)
        return tensor

    map_tensors(value, collect)
    return found


def _map_sequence(value: Any, function: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    items = [map_tensors(item, function) for item in value]
    if all(new is old for new, old in zip(items, value, strict=True)):
        return value
    return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)


def _map_dict(value: dict[Any, Any], function: Callable[[torch.Tensor], torch.Tensor]) -> dict[Any, Any]:
    items = {key: map_tensors(item, function) for key, item in value.items()}
    changed = {key: item for key, item in items.items() if item is not value[key]}
    if not changed:
        return value
    mapped = copy.copy(value)
    for key, item in changed.items():
        mapped[key] = item
    return mapped


def _map_dataclass(value: Any, function: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    names = [field.name for field in dataclasses.fields(value) if hasattr(value, field.name)]
    items = {name: map_tensors(getattr(value, name), function) for name in names}
    changed = {name: item for name, item in items.items() if item is not getattr(value, name)}
    if not changed:
        return value
    mapped = copy.copy(value)
    for name, item in changed.items():
        object.__setattr__(mapped, name, item)  # also where it is frozen
    return mapped
