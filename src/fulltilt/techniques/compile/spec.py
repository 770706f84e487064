"""Compilation: what it is, where it fits. Readable without torch."""

import os
import shutil
from dataclasses import dataclass
from typing import Literal

from fulltilt.technique import MachineRecord, Numerics, PhaseRecord, SiteRecord, Spec, Stage, forward_backward_bound


@dataclass(frozen=True, kw_only=True, slots=True)
class CompileOptions:
    """Settings of `compile`."""

    scope: Literal["regions", "model"] = "regions"
    """"regions": each block that repeats in a ModuleList or Sequential by itself; "model": each root module."""
    mode: Literal["default", "reduce-overhead", "max-autotune"] = "default"
    """As in `torch.compile`."""
    dynamic: bool | None = None
    """As in `torch.compile`: None compiles for the shapes seen and again, more generally, when they change."""


def candidates(machine: MachineRecord, site: SiteRecord, phases: PhaseRecord) -> tuple[CompileOptions, ...]:
    """Regions first: they compile faster. The whole model where its shapes are stable."""
    modules = [module for module in site.modules if module.num_parameters]
    found = []
    if any(region.stable_shapes for module in modules for region in module.regions):
        found.append(CompileOptions())
    if any(module.stable_shapes for module in modules):
        found.append(CompileOptions(scope="model"))
        if site.device == "cuda":
            found.append(CompileOptions(scope="model", mode="reduce-overhead"))
    return tuple(found)


def unavailable(machine: MachineRecord, site: SiteRecord | None) -> str | None:
    """Why compilation does not fit this machine or this script."""
    if (site.device if site is not None else machine.device) in ("", "cpu") and _cpp_compiler() is None:
        return "no C++ compiler was found (CXX, g++ or clang++), and code for the CPU needs one"
    return None if site is None else _site_reason(site)


def _site_reason(site: SiteRecord) -> str | None:
    if site.double_backward:
        return "the script differentiates gradients (create_graph=True), and compiled code has no second derivative"
    if any(module.compiled_by_user for module in site.modules):
        return "the script compiles its model itself"
    modules = [module for module in site.modules if module.num_parameters]
    stable = [module.stable_shapes or any(region.stable_shapes for region in module.regions) for module in modules]
    if modules and not any(stable):
        shapes = max(module.num_input_shapes for module in modules)
        return f"input shapes vary ({shapes} different ones seen), each new one may compile again"
    return None


def _cpp_compiler() -> str | None:
    named = os.environ.get("CXX", "").split()
    return next((path for name in (*named[:1], "g++", "clang++") if (path := shutil.which(name))), None)


SPEC = Spec(
    name="compile",
    summary="torch.compile in place, for repeated blocks or the whole model, with a fall-back to eager",
    options=CompileOptions,
    stage=Stage.COMPILE,
    numerics=Numerics.ROUNDING,
    apply="fulltilt.techniques.compile.apply:apply",
    candidates=candidates,
    unavailable=unavailable,
    bound=forward_backward_bound,
    changes_draws=True,
    after=("precision",),
)
