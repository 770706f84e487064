"""Going back to the moment before a module was called, so that the call can be made again."""

import random
import sys
import weakref
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import nn

Place = tuple[weakref.ref[nn.Module], str]
"""Where a buffer is found: its module and its name there."""


class Stream(NamedTuple):
    """One random stream of the process."""

    get: Callable[[], Any]
    set: Callable[[Any], None]
    fingerprint: Callable[[Any], Any]
    """Of a state, to be compared."""


def rewind_point(module: nn.Module) -> Callable[[], None]:
    """A function that puts back the buffers of `module` and the random streams as they are now."""
    return _point(_buffers_of(module), _streams())


def streams_point() -> Callable[[], None]:
    """A function that puts back the random streams as they are now: torch's (CPU, and CUDA where it is in use), that of
    `random`, and NumPy's where it is loaded."""
    return _point([], _streams())


def streams_fingerprint() -> tuple[Any, ...]:
    """Equal before and after something that has drawn no random number."""
    return tuple(stream.fingerprint(stream.get()) for stream in _streams())


class Rewinder:
    """Rewind points for call after call of one module, at the price of what its calls really change.

    The first point in each mode (training or not) is complete. What the first call changed is saved by later points:
    the statistics of BatchNorm, the streams that dropout draws from, and often nothing.
    """

    def __init__(self, module: nn.Module) -> None:
        self._module = weakref.ref(module)
        self._changing: dict[bool, _Changing] = {}
        self._first: tuple[bool, list[tuple[Place, Any, Any]], list[tuple[Stream, Any]]] | None = None

    @property
    def is_learning(self) -> bool:
        """Is the call that was begun the first in its mode?"""
        return self._first is not None

    def before_call(self) -> Callable[[], None]:
        """A rewind point of now. Tell `call_succeeded()` when there was nothing to rewind."""
        module = self._module()
        self._first = None
        if module is None:
            return streams_point()
        known = self._changing.get(module.training)
        if known is not None:
            return known.point()
        places, streams = _buffers_of(module), _streams()
        buffers = [
            (place, buffer, buffer.detach().clone()) for place in places if (buffer := _buffer_at(place)) is not None
        ]
        marks = [(stream, stream.fingerprint(stream.get())) for stream in streams]
        self._first = module.training, buffers, marks
        return _point(places, streams)

    def call_succeeded(self) -> bool:
        """Learn from the first call in a mode what calls change. Was this one the first?"""
        if self._first is None:
            return False
        training, buffers, marks = self._first
        self._first = None
        changed = [place for place, was, values in buffers if _is_changed(place, was, values)]
        moved = [stream for stream, mark in marks if stream.fingerprint(stream.get()) != mark]
        self._changing[training] = _Changing(changed, moved)
        return True


class _Changing:
    """What calls change. Its copies are made in the same memory each time: one point is in use at a time."""

    def __init__(self, places: list[Place], streams: list[Stream]) -> None:
        self._places, self._streams = places, streams
        self._groups: dict[torch.dtype, tuple[list[Place], list[torch.Tensor]]] = {}
        for place in places:
            buffer = _buffer_at(place)
            if buffer is not None:
                group_places, copies = self._groups.setdefault(buffer.dtype, ([], []))
                group_places.append(place)
                copies.append(torch.empty_like(buffer))

    def point(self) -> Callable[[], None]:
        present: list[tuple[list[Any], list[Place], list[torch.Tensor]]] = [
            ([_buffer_at(place) for place in places], places, copies) for places, copies in self._groups.values()
        ]
        if not all(_fit(buffers, copies) for buffers, _, copies in present):
            return _point(self._places, self._streams)
        with torch.no_grad():
            for buffers, _, copies in present:
                torch._foreach_copy_(copies, buffers)
        states = [(stream, stream.get()) for stream in self._streams]

        def rewind() -> None:
            with torch.no_grad():
                for buffers, places, copies in present:
                    torch._foreach_copy_(buffers, copies)
                    for place, buffer in zip(places, buffers, strict=True):
                        _put_buffer(place, buffer)
            for stream, state in states:
                stream.set(state)

        return rewind


def _fit(buffers: list[Any], copies: list[torch.Tensor]) -> bool:
    return all(
        buffer is not None
        and buffer.shape == copy.shape
        and buffer.dtype is copy.dtype
        and buffer.device == copy.device
        for buffer, copy in zip(buffers, copies, strict=True)
    )


def _point(places: list[Place], streams: list[Stream]) -> Callable[[], None]:
    buffers = [
        (place, buffer, buffer.detach().clone()) for place in places if (buffer := _buffer_at(place)) is not None
    ]
    states = [(stream, stream.get()) for stream in streams]

    def rewind() -> None:
        with torch.no_grad():
            for place, buffer, saved in buffers:
                buffer.copy_(saved)
                _put_buffer(place, buffer)
        for stream, state in states:
            stream.set(state)

    return rewind


def _buffers_of(module: nn.Module) -> list[Place]:
    return [
        (weakref.ref(owner), name)
        for owner in module.modules()
        for name, buffer in owner._buffers.items()
        if buffer is not None
    ]


def _buffer_at(place: Place) -> torch.Tensor | None:
    owner = place[0]()
    return owner._buffers.get(place[1]) if owner is not None else None


def _put_buffer(place: Place, buffer: torch.Tensor) -> None:
    owner = place[0]()
    if owner is not None:
        owner._buffers[place[1]] = buffer


def _is_changed(place: Place, was: torch.Tensor, values: torch.Tensor) -> bool:
    """By value: BatchNorm's kernels write its statistics without a count in `_version`."""
    if was.is_meta or was.layout is not torch.strided:
        return True
    return _buffer_at(place) is not was or not torch.equal(was, values)


def _streams() -> list[Stream]:
    found = [
        Stream(torch.get_rng_state, torch.set_rng_state, _bytes),
        Stream(random.getstate, random.setstate, lambda state: state),
    ]
    if torch.cuda.is_initialized():
        found.append(
            Stream(torch.cuda.get_rng_state_all, torch.cuda.set_rng_state_all, lambda all: [*map(_bytes, all)])
        )
    numpy: Any = getattr(sys.modules.get("numpy"), "random", None)
    if numpy is not None:
        found.append(Stream(numpy.get_state, numpy.set_state, lambda s: (s[1].tobytes(), s[2:])))
    return found


def _bytes(state: torch.Tensor) -> bytes:
    return bytes(state.tolist())
