"""The kit itself finds techniques that break a promise."""

import dataclasses
import sys
import types
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import nn

from fulltilt.technique import Applied, NoEffect, Numerics, Site, Spec, Stage
from fulltilt.testing import conformance
from fulltilt.testing.conformance import Nonconformance, Script


@dataclass(frozen=True, kw_only=True, slots=True)
class Options:
    """None."""


def make() -> Script:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 1))
    return Script(
        model=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
        loss=nn.functional.mse_loss,
        batches=[(torch.ones(2, 4), torch.zeros(2, 1))],
    )


@pytest.fixture
def spec_with(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Spec]:
    def spec_with(apply: Callable[[Site, Any], Any], stage: Stage = Stage.MODEL) -> Spec:
        module = types.ModuleType("bad_technique")
        module.apply = apply  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "bad_technique", module)
        return Spec(
            name="bad", summary="bad", options=Options, stage=stage, numerics=Numerics.ROUNDING,
            apply="bad_technique:apply",
        )  # fmt: skip

    return spec_with


def double_the_weights(site: Site, options: Any) -> Applied:
    for module in site.modules.values():
        for parameter in module.parameters():
            parameter.data *= 2
    return Applied(detail="doubled")


def warn(site: Site, options: Any) -> Applied:
    def wrapper(call: Any, args: Any, kwargs: Any) -> Any:
        torch.tensor(1.0).requires_grad_().mul(2).grad  # noqa: B018
        return call(*args, **kwargs)

    for module in site.modules.values():
        site.around(module, wrapper)
    return Applied(detail="warns")


def add_a_buffer(site: Site, options: Any) -> Applied:
    for module in site.modules.values():
        module.register_buffer("extra", torch.ones(1))
    return Applied(detail="added")


def change_the_class(site: Site, options: Any) -> Applied:
    for module in site.modules.values():
        module.__class__ = type("Wrapped", (type(module),), {})
    return Applied(detail="wrapped")


@pytest.mark.parametrize(
    ("check", "apply", "message"),
    [
        (conformance.check_losses_stay_in_class, double_the_weights, "loss of step 1"),
        (conformance.check_losses_stay_in_class, warn, "no new warnings"),
        (conformance.check_checkpoints_are_the_same, add_a_buffer, "state_dict"),
        (conformance.check_model_is_still_itself, change_the_class, "type"),
        (conformance.check_applying_twice_does_nothing_twice, double_the_weights, "losses"),
        (conformance.check_leaves_alone, double_the_weights, "NoEffect"),
        (conformance.check_proves_that_it_engaged, lambda site, options: NoEffect(reason=""), "has a reason"),
        (
            conformance.check_proves_that_it_engaged,
            lambda site, options: Applied(detail="never", engaged=lambda: None),
            "it engaged",
        ),
    ],
)
def test_a_broken_promise_is_found(
    spec_with: Callable[..., Spec], check: conformance.Check, apply: Callable[[Site, Any], Any], message: str
) -> None:
    with pytest.raises(Nonconformance, match=message):
        check(spec_with(apply), Options(), make)


def test_other_draws_where_the_scripts_own_are_asked_for_are_found(spec_with: Callable[..., Spec]) -> None:
    def reseed(site: Site, options: Any) -> Applied:
        torch.manual_seed(1)
        return Applied(detail="draws otherwise")

    def make_with_dropout() -> Script:
        script = make()
        script.model.append(nn.Dropout())
        return script

    spec = dataclasses.replace(spec_with(reseed), changes_draws=True)
    with pytest.raises(Nonconformance, match="with the script's draws"):
        conformance.check_draws_the_same_numbers_where_asked(spec, Options(), make_with_dropout)


def test_a_missing_card_is_found(spec_with: Callable[..., Spec], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conformance, "spec_module", lambda spec: "fulltilt.technique")
    with pytest.raises(Nonconformance, match=r"card\.md exists"):
        conformance.check_card_has_all_headings(spec_with(add_a_buffer), Options(), make)


def test_a_spec_that_imports_torch_is_found(spec_with: Callable[..., Spec], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conformance, "spec_module", lambda spec: "torch")
    with pytest.raises(Nonconformance, match="without torch"):
        conformance.check_spec_needs_no_torch(spec_with(add_a_buffer), Options(), make)
