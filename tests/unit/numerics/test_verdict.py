"""Verdicts on real trainings: what is harmless is kept, every fault is refused with the evidence that shows it.

Each change is tried on five seeds, each with another model and optimizer where the change does not need a certain one.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from fulltilt.numerics.verdict import class_of, judge
from fulltilt.records.codec import from_json, to_json
from fulltilt.records.journal import VerdictRecord
from fulltilt.records.record import Evidence
from fulltilt.records.words import Numerics

Train = Callable[..., Evidence]
FLOAT32, BFLOAT16 = 2.0**-24, 2.0**-8
MIXED = [("lm", "adamw"), ("mlp", "sgd"), ("cnn", "adamw"), ("mlp", "adamw"), ("lm", "sgd")]
SEEDS = range(5)


def runs(train: Train, model: str, optimizer: str, seed: int, relative: float, dropout: float = 0.0) -> dict[str, Any]:
    def one(**more: Any) -> Evidence:
        return train(model, optimizer, seed, dropout=dropout, **more)

    return {
        "baseline": one(),
        "repeat": [one(change="repeat")],
        "rounding": [one(perturb=(relative, run)) for run in (1, 2)],
    }


def verdict(
    train: Train, change: str, seed: int, relative: float, model: str = "", optimizer: str = "", dropout: float = 0.0
) -> VerdictRecord:
    """ROUNDING's verdict on one change; model and optimizer follow the seed where they are not given."""
    model, optimizer = model or MIXED[seed][0], optimizer or MIXED[seed][1]
    candidate = train(model, optimizer, seed, dropout=dropout, change=change)
    return judge(candidate, numerics=Numerics.ROUNDING, **runs(train, model, optimizer, seed, relative, dropout))


def kinds(found: VerdictRecord) -> set[str]:
    return {sentence.partition(":")[0] for sentence in found.broken}


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("relative", [FLOAT32, BFLOAT16])
@pytest.mark.parametrize("change", ["none", "fused", "foreach", "sum in float64", "two threads"])
def test_another_rounding_is_kept(train: Train, change: str, seed: int, relative: float) -> None:
    assert verdict(train, change, seed, relative).broken == ()


@pytest.mark.parametrize("seed", SEEDS)
def test_channels_last_is_kept(train: Train, seed: int) -> None:
    assert verdict(train, "channels_last", seed, FLOAT32, model="cnn", optimizer="adamw").broken == ()


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("model", "optimizer"), [("lm", "adamw"), ("mlp", "adamw"), ("cnn", "sgd")])
def test_bfloat16_autocast_is_kept_in_its_own_envelope_only(
    train: Train, seed: int, model: str, optimizer: str
) -> None:
    assert verdict(train, "bfloat16 autocast", seed, BFLOAT16, model, optimizer).broken == ()
    assert "losses" in kinds(verdict(train, "bfloat16 autocast", seed, FLOAT32, model, optimizer))


FAULTS = [
    # change, model, optimizer, dropout, evidence that must be among what speaks against it under either envelope
    ("loss doubled", "", "", 0.0, {"losses", "gradient norms", "first gradients, scale"}),
    ("gradient missing", "", "", 0.0, {"parameters with gradients", "moved parameters"}),
    ("gradient zero", "", "", 0.0, {"first gradients, each", "updates, each"}),
    ("clipped before unscaling", "", "", 0.0, {"gradient norms", "first gradients, all"}),
    ("weight decay lost", "", "adamw", 0.0, {"optimizer state"}),
    ("learning rate +10 %", "", "", 0.0, {"updates, scale"}),
    ("learning rate -10 %", "", "", 0.0, {"updates, scale"}),
    ("BatchNorm twice", "mlp", "", 0.0, {"counting buffers", "buffers"}),
    ("step skipped", "", "", 0.0, {"optimizer steps", "updates, scale"}),
    ("step not counted", "", "", 0.0, {"updates, scale"}),
    ("weights untied", "lm", "", 0.0, {"tied weights", "parameters"}),
    ("key renamed", "", "", 0.0, {"state_dict"}),
    ("stale autocast weights", "", "", 0.0, {"losses"}),
    ("accumulation off by 2", "", "", 0.0, {"gradient norms", "first gradients, scale"}),
    ("gradient not a number", "", "", 0.0, {"finite values"}),
    ("bfloat16 weights", "", "", 0.0, {"state_dict", "parameters"}),
    ("eval left on", "", "", 0.1, {"draws", "losses"}),
    ("dropout 0.3", "", "", 0.1, {"losses", "updates, all"}),
    ("labels shuffled once", "", "", 0.0, {"losses"}),
]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("relative", [FLOAT32, BFLOAT16])
@pytest.mark.parametrize(("change", "model", "optimizer", "dropout", "shown_by"), FAULTS, ids=[f[0] for f in FAULTS])
def test_a_fault_is_refused_with_the_evidence_that_shows_it(
    train: Train,
    change: str,
    model: str,
    optimizer: str,
    dropout: float,
    shown_by: set[str],
    seed: int,
    relative: float,
) -> None:
    found = verdict(train, change, seed, relative, model, optimizer, dropout)
    assert not found.kept
    assert shown_by <= kinds(found)


@pytest.mark.parametrize("seed", SEEDS)
def test_lost_weight_decay_is_seen_in_the_updates_under_float32(train: Train, seed: int) -> None:
    candidate = train("lm", "adamw", seed, change="weight decay lost")
    known = runs(train, "lm", "adamw", seed, FLOAT32)
    hidden = replace(candidate, optimizer_state=known["baseline"].optimizer_state)
    assert "updates, all" in kinds(judge(hidden, numerics=Numerics.ROUNDING, **known))


@pytest.mark.parametrize("seed", SEEDS)
def test_exact_keeps_the_same_run_and_refuses_another_rounding(train: Train, seed: int) -> None:
    model, optimizer = MIXED[seed]
    known = runs(train, model, optimizer, seed, FLOAT32)
    del known["rounding"]
    same = train(model, optimizer, seed, change="none, once more")
    other = train(model, optimizer, seed, change="sum in float64")
    assert judge(same, numerics=Numerics.EXACT, **known).broken == ()
    assert "updates, all" in kinds(judge(other, numerics=Numerics.EXACT, **known))


def test_exact_allows_the_noise_of_the_repeat(train: Train) -> None:
    baseline = train("mlp", "sgd", 0)
    repeat = [train("mlp", "sgd", 0, perturb=(FLOAT32, 3))]
    noisy = train("mlp", "sgd", 0, change="sum in float64")
    same_start = {n: replace(p, start=baseline.parameters[n].start) for n, p in repeat[0].parameters.items()}
    repeat = [replace(repeat[0], parameters=same_start)]
    assert judge(noisy, baseline, numerics=Numerics.EXACT, repeat=repeat).broken == ()
    wrong = train("mlp", "sgd", 0, change="learning rate +10 %")
    assert "updates, scale" in kinds(judge(wrong, baseline, numerics=Numerics.EXACT, repeat=repeat))


def sampling(train: Train, seed: int) -> dict[str, Any]:
    model, optimizer = MIXED[seed]
    known = runs(train, model, optimizer, seed, FLOAT32, dropout=0.1)
    return known | {"sampling": [train(model, optimizer, seed, dropout=0.1, reseed=100 + run) for run in (1, 2)]}


@pytest.mark.parametrize("seed", SEEDS)
def test_other_draws_are_kept_only_for_a_technique_that_changes_draws(train: Train, seed: int) -> None:
    known = sampling(train, seed)
    candidate = train(*MIXED[seed], seed, dropout=0.1, reseed=999)
    allowed = judge(candidate, numerics=Numerics.ROUNDING, changes_draws=True, **known)
    refused = judge(candidate, numerics=Numerics.ROUNDING, **known)
    assert allowed.broken == ()
    assert "draws" in kinds(refused)
    assert "it draws other random numbers" in " ".join(refused.broken)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("change", ["loss doubled", "clipped before unscaling", "accumulation off by 2", "dropout 0.3"])
def test_large_faults_are_seen_among_other_draws(train: Train, change: str, seed: int) -> None:
    candidate = train(*MIXED[seed], seed, dropout=0.1, change=change, reseed=999)
    assert not judge(candidate, numerics=Numerics.ROUNDING, changes_draws=True, **sampling(train, seed)).kept


@pytest.mark.parametrize("seed", SEEDS)
def test_lossy_is_judged_by_losses_and_structure(train: Train, seed: int) -> None:
    model, optimizer = MIXED[seed]
    baseline, repeat = train(model, optimizer, seed), [train(model, optimizer, seed, change="repeat")]

    def judged(change: str) -> VerdictRecord:
        candidate = train(model, optimizer, seed, change=change)
        return judge(candidate, baseline, numerics=Numerics.LOSSY, repeat=repeat)

    assert judged("learning rate +10 %").kept
    assert kinds(judged("loss doubled")) == {"losses"}
    assert "finite values" in kinds(judged("gradient not a number"))
    assert kinds(judged("key renamed")) == {"state_dict"}


def test_a_command_that_ended_earlier_is_refused(train: Train) -> None:
    whole = train()
    short = replace(whole, num_steps=5, losses=whole.losses[:5], gradient_norms=whole.gradient_norms[:5])
    found = judge(short, whole, numerics=Numerics.EXACT, repeat=[whole])
    assert found.broken == ("steps: it ended after 5 steps, the baseline had 8",)


def test_a_backward_call_more_is_refused(train: Train) -> None:
    whole = train()
    more = replace(whole, losses=(whole.losses[0], (*whole.losses[1], 0.5), *whole.losses[2:]))
    found = judge(more, whole, numerics=Numerics.EXACT, repeat=[whole])
    assert found.broken == ("number of losses: 2 backward calls in step 2, in the baseline 1",)


def test_a_baseline_without_steps_cannot_be_judged_by(train: Train) -> None:
    nothing = replace(train(), num_steps=0, losses=(), gradient_norms=(), parameters={}, buffers={})
    assert kinds(judge(nothing, nothing, numerics=Numerics.EXACT, repeat=[nothing])) == {"steps"}


def test_other_initial_weights_are_refused_unless_the_repeat_has_others_too(train: Train) -> None:
    baseline, other, third = train(seed=0), train(seed=1), train(seed=2)
    steady = judge(other, baseline, numerics=Numerics.EXACT, repeat=[baseline])
    unsteady = judge(other, baseline, numerics=Numerics.EXACT, repeat=[third])
    assert "initial weights" in kinds(steady)
    assert "initial weights" not in kinds(unsteady)
    assert "initial weights: cannot be judged" in " ".join(unsteady.evidence)


def test_a_command_that_does_not_repeat_itself_is_named_and_its_noise_allowed(train: Train) -> None:
    baseline, other, third = train(seed=0), train(seed=1), train(seed=2)
    found = judge(other, baseline, numerics=Numerics.EXACT, repeat=[third])
    assert found.broken == ()
    assert "does not repeat itself" in found.evidence[-1]
    assert "draws: cannot be judged" in found.evidence[-2]


def test_optimizer_keys_may_differ_only_if_the_repeat_differs_too(train: Train) -> None:
    baseline = train()
    other = replace(baseline, optimizer_state=baseline.optimizer_state | {"Optimizer.state0.more": "torch.float32"})
    assert kinds(judge(other, baseline, numerics=Numerics.EXACT, repeat=[baseline])) == {"optimizer state"}
    assert judge(other, baseline, numerics=Numerics.EXACT, repeat=[other]).kept


def test_values_that_are_not_finite_in_the_baseline_are_not_held_against_the_candidate(train: Train) -> None:
    broken = train(change="gradient not a number")
    found = judge(broken, broken, numerics=Numerics.EXACT, repeat=[broken])
    assert found.broken == ()
    assert "not finite in the baseline itself" in " ".join(found.evidence)


def test_a_parameter_that_stops_moving_is_named(train: Train) -> None:
    baseline = train("lm", "sgd")
    name = "blocks.0.value.weight"
    known = baseline.parameters[name]
    stuck = replace(baseline, parameters=baseline.parameters | {name: replace(known, end=known.start)})
    for candidate, other, sentence in (
        (stuck, baseline, f"moved parameters: {name} does not move, in the baseline it does"),
        (baseline, stuck, f"moved parameters: {name} moves, in the baseline it does not"),
    ):
        assert sentence in judge(candidate, other, numerics=Numerics.EXACT, repeat=[other]).broken


def test_sentences_name_the_worst_with_measured_and_allowed(train: Train) -> None:
    found = verdict(train, "gradient zero", 0, FLOAT32)
    sentence = next(text for text in found.broken if text.startswith("first gradients, each"))
    assert "down.weight" in sentence
    assert "by 1 of its norm, allowed" in sentence
    assert "(rounding envelope)" in sentence


def test_a_verdict_from_records_read_back_is_the_same(train: Train) -> None:
    baseline, candidate = train(), train(change="gradient not a number")
    back = [from_json(Evidence, to_json(evidence)) for evidence in (candidate, baseline)]
    direct = judge(candidate, baseline, numerics=Numerics.EXACT, repeat=[baseline])
    assert judge(*back, numerics=Numerics.EXACT, repeat=[back[1]]) == direct


@pytest.mark.parametrize(
    ("numerics", "missing", "given"),
    [
        (Numerics.EXACT, "repeat", {"repeat": []}),
        (Numerics.ROUNDING, "rounding", {}),
        (Numerics.EXACT, "sampling", {"changes_draws": True}),
        (Numerics.LOSSY, "repeat", {"repeat": []}),
    ],
)
def test_a_missing_envelope_is_an_error(train: Train, numerics: Numerics, missing: str, given: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=f"needs {missing} runs"):
        judge(train(), train(), numerics=numerics, **({"repeat": [train()]} | given))


def test_class_of_several_techniques_is_the_widest() -> None:
    assert class_of([Numerics.EXACT, Numerics.LOSSY, Numerics.ROUNDING]) is Numerics.LOSSY
    assert class_of([Numerics.EXACT, Numerics.ROUNDING]) is Numerics.ROUNDING
    assert class_of([]) is Numerics.EXACT
