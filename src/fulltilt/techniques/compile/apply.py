"""Compilation in the worker: each unit is compiled in place and guarded.

`module.compile()` keeps the module, so keys of the state_dict, types, pickles and `named_parameters()` stay
(a wrapper would put `_orig_mod.` in front of every key: https://github.com/karpathy/nanoGPT/issues/325).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import nn

from fulltilt.technique import Applied, NoEffect, Site
from fulltilt.techniques.compile import session
from fulltilt.techniques.compile.double_backward import where_asked_for
from fulltilt.techniques.compile.gate import Gate
from fulltilt.techniques.compile.guard import GuardedUnit, Tally
from fulltilt.techniques.compile.spec import CompileOptions


def apply(site: Site, options: CompileOptions) -> Applied | NoEffect:
    """Compile the units of the site's root modules that `options.scope` names."""
    roots = {name: module for name, module in site.modules.items() if _is_worth_it(module)}
    if not roots:
        return NoEffect(reason=f"{', '.join(site.modules) or 'no module'}: nothing that could be fused")
    for name, module in roots.items():
        if is_compiled(module):
            return NoEffect(reason=f"{name} is compiled already")
    place = where_asked_for()
    if place is not None:
        return NoEffect(reason=f"{place} asks for the graph of a gradient, and compiled code has no second derivative")
    units = list(units_of(roots, options.scope))
    if not units:
        return NoEffect(reason="no blocks of one class repeat in a ModuleList or Sequential")
    gates = {name: Gate(name, site.note) for name in roots}
    guards = [GuardedUnit(unit.name, unit.module, gates[unit.root], site.note, len(units)) for unit in units]
    if site.tie_draws:
        session.tie_draws()
    for guard in guards:
        guard.install(mode=options.mode, dynamic=options.dynamic)
    for name, gate in gates.items():
        site.around(roots[name], gate.call)
    tallies = [guard.tally for guard in guards]
    return Applied(detail=_describe(units, options.scope), engaged=lambda: _proof(tallies))


def is_compiled(module: nn.Module) -> bool:
    """Is it, or a part of it, compiled by somebody already?"""
    return isinstance(module, torch._dynamo.OptimizedModule) or any(
        part._compiled_call_impl is not None for part in module.modules()
    )


def _is_worth_it(module: nn.Module) -> bool:
    """A single layer of torch.nn runs one kernel already, and a loss without parameters is not the model."""
    if next(module.parameters(), None) is None:
        return False
    return not type(module).__module__.startswith("torch.nn") or next(module.children(), None) is not None


class Unit(NamedTuple):
    """A module to compile."""

    root: str
    name: str
    module: nn.Module


def units_of(roots: dict[str, nn.Module], scope: str) -> Iterator[Unit]:
    """The modules to compile; each once."""
    seen: set[int] = set()
    for root_name, root in roots.items():
        found = [(root_name, root)] if scope == "model" else repeated_blocks(root, root_name)
        for name, module in found:
            if id(module) not in seen:
                seen.add(id(module))
                yield Unit(root_name, name, module)


def repeated_blocks(module: nn.Module, prefix: str) -> Iterator[tuple[str, nn.Module]]:
    """Modules of one class, at least two, side by side in a ModuleList or Sequential; the outermost such level."""
    blocks: set[int] = set()
    if isinstance(module, nn.ModuleList | nn.Sequential):
        counts = Counter(type(child) for child in module if next(child.children(), None) is not None)
        blocks = {id(child) for child in module if counts[type(child)] >= 2}
    for name, child in module.named_children():
        path = f"{prefix}.{name}"
        if id(child) in blocks:
            yield path, child
        else:
            yield from repeated_blocks(child, path)


def _describe(units: list[Unit], scope: str) -> str:
    classes = Counter(type(unit.module).__name__ for unit in units)
    named = ", ".join(f"{number} of class {name}" for name, number in classes.items())
    return f"compiled {named}" if scope == "model" else f"compiled blocks: {named}"


def _proof(tallies: list[Tally]) -> str | None:
    """Graphs and calls of the units that still run compiled; no graphs means that nothing was compiled."""
    live = [tally for tally in tallies if not tally.fell_back]
    calls = sum(tally.num_calls for tally in live)
    graphs = sum(tally.num_graphs for tally in tallies)
    if not calls or not graphs:
        return None
    fallen = f", {len(tallies) - len(live)} units fell back to eager" if len(live) < len(tallies) else ""
    return f"{graphs} graphs, {calls} compiled calls{fallen}"
