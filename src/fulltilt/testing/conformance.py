"""The checks that every technique must pass: ours, and those you write.

Give each check the spec, options, and a function that makes the smallest script your technique fits:

    @pytest.mark.parametrize("check", conformance.CHECKS)
    def test_my_technique(check):
        check(SPEC, SPEC.options(), make_script)

A check that fails raises `Nonconformance` with what was expected and what was seen.
"""

from __future__ import annotations

import copy
import dataclasses
import importlib.util
import io
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader

from fulltilt.technique import Applied, NoEffect, Numerics, Spec, Stage
from fulltilt.testing.fake_site import FakeSite

HEADINGS = ("What it does", "When it helps", "When it hurts", "Numerics", "Options", "Measured", "Source")
NUM_STEPS = 6
_ALLOWED_ROUNDINGS = 16
"""Roundings by which a loss may differ in the first steps of a tiny model."""


class Nonconformance(AssertionError):
    """A technique breaks a promise."""


@dataclasses.dataclass(kw_only=True, slots=True)
class Script:
    """A training script in five objects. A function that makes one must make the same one each time (seed it)."""

    model: nn.Module
    optimizer: torch.optim.Optimizer
    loss: Callable[[Any, Any], torch.Tensor]
    batches: Iterable[tuple[Any, Any]]
    """A DataLoader, or a list; gone through again and again."""
    closure: bool = False
    """Call `optimizer.step(closure)`, as L-BFGS wants it."""


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Run:
    """What came of a script under a technique."""

    script: Script
    losses: tuple[float, ...]
    result: Applied | NoEffect | None
    evidence: str | None
    """What `Applied.engaged` said after the last step."""
    warnings: tuple[str, ...]
    notes: tuple[str, ...]


MakeScript = Callable[[], Script]
Check = Callable[[Spec, Any, MakeScript], None]


def run(
    script: Script,
    spec: Spec | None = None,
    options: Any = None,
    num_steps: int = NUM_STEPS,
    *,
    tie_draws: bool = False,
) -> Run:
    """Train for `num_steps` steps, with the technique applied at the moment of its stage."""
    loaders = (script.batches,) if isinstance(script.batches, DataLoader) else ()
    with (
        warnings.catch_warnings(record=True) as caught,
        FakeSite(script.model, script.optimizer, loaders) as site,
    ):
        warnings.simplefilter("always")
        site.tie_draws = tie_draws
        training = _Training(script, site, spec, options)
        losses = training.run(num_steps)
        result = training.result
        evidence = result.engaged() if isinstance(result, Applied) and result.engaged is not None else None
    return Run(
        script=script,
        losses=tuple(losses),
        result=result,
        evidence=evidence,
        warnings=tuple(str(warning.message) for warning in caught),
        notes=tuple(site.notes),
    )


def check_spec_needs_no_torch(spec: Spec, options: Any, make: MakeScript) -> None:
    """The parent, which has no torch, reads the spec and its options."""
    module = spec_module(spec)
    program = f"import sys, {module} as m; m.SPEC.options(); sys.exit('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    _expect(done.returncode == 0, f"{module} is read without torch", done.stderr or "it imports torch")


def check_options_have_defaults(spec: Spec, options: Any, make: MakeScript) -> None:
    """Options are a frozen dataclass that can be made from nothing, and have a rounding."""
    parameters: Any = getattr(spec.options, "__dataclass_params__", None)
    _expect(parameters is not None and parameters.frozen, "options are a frozen dataclass", spec.options)
    _expect(spec.options() == spec.options(), "options at their defaults are equal", spec.options())
    _expect(0.0 < spec.rounding(spec.options()) < 1.0, "rounding is a relative size", spec.rounding(spec.options()))


def check_card_has_all_headings(spec: Spec, options: Any, make: MakeScript) -> None:
    """`card.md` lies beside the spec."""
    found = importlib.util.find_spec(spec_module(spec))
    _expect(found is not None and found.origin is not None, "the spec has a file", found)
    assert found is not None
    assert found.origin is not None
    card = Path(found.origin).with_name("card.md")
    _expect(card.is_file(), "card.md exists", card)
    lines = card.read_text(encoding="utf-8").splitlines()
    missing = [heading for heading in HEADINGS if f"## {heading}" not in lines]
    _expect(not missing, "card.md has all headings", f"missing: {', '.join(missing)}")


def check_proves_that_it_engaged(spec: Spec, options: Any, make: MakeScript) -> None:
    """Applied with evidence after some steps, or NoEffect with a reason."""
    after = run(make(), spec, options)
    if isinstance(after.result, NoEffect):
        _expect(bool(after.result.reason), "NoEffect has a reason", after.result)
        return
    assert isinstance(after.result, Applied)
    _expect(bool(after.result.detail), "Applied says what was done", after.result)
    proven = after.result.engaged is None or bool(after.evidence)
    _expect(proven, "it engaged on a script that it fits", f"no evidence; notes: {after.notes}")


def check_losses_stay_in_class(spec: Spec, options: Any, make: MakeScript) -> None:
    """The losses of the first steps differ from the untouched script's by what the class allows; no new warnings."""
    before, after = run(make()), run(make(), spec, options)
    allowed = 0.0 if spec.numerics is Numerics.EXACT else _ALLOWED_ROUNDINGS * spec.rounding(options)
    for step, (wanted, found) in enumerate(zip(before.losses, after.losses, strict=True), start=1):
        difference = abs(found - wanted) / max(1.0, abs(wanted))
        _expect(difference <= allowed, f"loss of step {step} within {allowed:.2g} of {wanted:.8g}", found)
    new = [message for message in after.warnings if message not in before.warnings]
    _expect(not new, "no new warnings", new)


def check_draws_the_same_numbers_where_asked(spec: Spec, options: Any, make: MakeScript) -> None:
    """A technique that draws other random numbers draws the script's own on a site that asks for it."""
    if not spec.changes_draws:
        return
    before, after = run(make()), run(make(), spec, options, tie_draws=True)
    allowed = _ALLOWED_ROUNDINGS * spec.rounding(options)
    for step, (wanted, found) in enumerate(zip(before.losses, after.losses, strict=True), start=1):
        difference = abs(found - wanted) / max(1.0, abs(wanted))
        _expect(difference <= allowed, f"with the script's draws, loss of step {step} {wanted:.8g}", found)


def check_checkpoints_are_the_same(spec: Spec, options: Any, make: MakeScript) -> None:
    """Keys, shapes and dtypes of what the script would save, of the model and of the optimizer."""
    before, after = run(make()).script, run(make(), spec, options).script
    for wanted, found in (
        (_describe(before.model.state_dict()), _describe(after.model.state_dict())),
        (_describe(before.optimizer.state_dict()), _describe(after.optimizer.state_dict())),
    ):
        _expect(found == wanted, f"state_dict {wanted}", found)


def check_model_is_still_itself(spec: Spec, options: Any, make: MakeScript) -> None:
    """Its type, deep copies, pickles, and hooks that the script registers afterwards."""
    wanted = make().model
    after = run(make(), spec, options, num_steps=2).script
    model = after.model
    batch, _ = next(iter(after.batches))
    _expect(type(model) is type(wanted), f"type {type(wanted)}", type(model))
    _expect(list(vars(model)) == list(vars(wanted)) or _only_private(model, wanted), "no new attributes", vars(model))
    for name, twin in (("deep copy", copy.deepcopy(model)), ("pickle", _saved_and_loaded(model))):
        _expect(type(twin) is type(model), f"{name} of type {type(model)}", type(twin))
        _expect(_describe(twin.state_dict()) == _describe(model.state_dict()), f"{name} with the same state", twin)
    calls: list[nn.Module] = []
    handle = model.register_forward_hook(lambda module, args, output: calls.append(module))
    model(batch)
    handle.remove()
    _expect(len(calls) == 1, "a hook registered later runs once a call", len(calls))


def check_applying_twice_does_nothing_twice(spec: Spec, options: Any, make: MakeScript) -> None:
    """The second time finds its own work, and the numbers stay in their class."""
    script = make()
    once = run(make(), spec, options)
    twice = _run_applied_twice(script, spec, options)
    _expect(isinstance(twice.result, Applied | NoEffect), "a second application returns", twice.result)
    allowed = 0.0 if spec.numerics is Numerics.EXACT else _ALLOWED_ROUNDINGS * spec.rounding(options)
    for found, wanted in zip(twice.losses, once.losses, strict=True):
        _expect(abs(found - wanted) <= allowed * max(1.0, abs(wanted)), f"losses {once.losses}", twice.losses)


CHECKS: tuple[Check, ...] = (
    check_spec_needs_no_torch,
    check_options_have_defaults,
    check_card_has_all_headings,
    check_proves_that_it_engaged,
    check_losses_stay_in_class,
    check_draws_the_same_numbers_where_asked,
    check_checkpoints_are_the_same,
    check_model_is_still_itself,
    check_applying_twice_does_nothing_twice,
)


def check_leaves_alone(spec: Spec, options: Any, make: MakeScript) -> None:
    """On a script that it does not fit: NoEffect with a reason, no exception, and the very same losses."""
    before, after = run(make()), run(make(), spec, options)
    _expect(isinstance(after.result, NoEffect), "NoEffect", after.result)
    assert isinstance(after.result, NoEffect)
    _expect(bool(after.result.reason), "a reason", after.result)
    _expect(after.losses == before.losses, f"losses {before.losses}", after.losses)


def spec_module(spec: Spec) -> str:
    """The module in which a spec is defined: beside its `apply.py`."""
    package, _, _ = spec.apply.partition(":")[0].rpartition(".")
    return f"{package}.spec"


class _Training:
    """A training loop that applies a technique when its stage comes."""

    def __init__(self, script: Script, site: FakeSite, spec: Spec | None, options: Any, times: int = 1) -> None:
        self._script, self._site, self._spec, self._options = script, site, spec, options
        self._times = times
        self.result: Applied | NoEffect | None = None

    def run(self, num_steps: int) -> list[float]:
        self._reached(Stage.ENV, Stage.BACKEND, Stage.DATA, Stage.MODEL, Stage.LOSS, Stage.COMPILE, Stage.WRAP)
        losses: list[float] = []
        while len(losses) < num_steps:
            for inputs, targets in self._script.batches:
                losses.append(self._step(inputs, targets))
                self._reached(Stage.STEP)
                if len(losses) == num_steps:
                    break
        return losses

    def _step(self, inputs: Any, targets: Any) -> float:
        optimizer = self._script.optimizer

        def closure() -> torch.Tensor:
            optimizer.zero_grad()
            loss = self._script.loss(self._script.model(inputs), targets)
            loss.backward()
            return loss

        loss = closure()
        self._reached(Stage.OPTIMIZER)
        optimizer.step(closure) if self._script.closure else optimizer.step()  # type: ignore[arg-type]
        return loss.item()

    def _reached(self, *stages: Stage) -> None:
        if self._spec is not None and self._spec.stage in stages and self.result is None:
            apply = self._spec.load_apply()
            self.result = apply(self._site, self._options)
            for _ in range(self._times - 1):
                apply(self._site, self._options)


def _run_applied_twice(script: Script, spec: Spec, options: Any) -> Run:
    loaders = (script.batches,) if isinstance(script.batches, DataLoader) else ()
    with FakeSite(script.model, script.optimizer, loaders) as site:
        training = _Training(script, site, spec, options, times=2)
        losses = training.run(NUM_STEPS)
    return Run(
        script=script, losses=tuple(losses), result=training.result, evidence=None, warnings=(), notes=tuple(site.notes)
    )


def _describe(value: Any) -> Any:
    """A state_dict with each tensor replaced by its dtype, shape and device."""
    if isinstance(value, torch.Tensor):
        return str(value.dtype), tuple(value.shape), str(value.device)
    if isinstance(value, dict):
        return {key: _describe(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [_describe(item) for item in value]
    return value


def _only_private(model: nn.Module, wanted: nn.Module) -> bool:
    """What torch itself leaves on a compiled module: it is taken along by no copy and no pickle."""
    return set(vars(model)) - set(vars(wanted)) <= {"_compiled_call_impl"}


def _saved_and_loaded(model: nn.Module) -> nn.Module:
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    loaded: nn.Module = torch.load(file, weights_only=False)
    return loaded


def _expect(condition: bool, expected: str, seen: object) -> None:
    if not condition:
        raise Nonconformance(f"expected {expected}; seen: {seen}")
