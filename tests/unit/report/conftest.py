"""A realistic result to render: a transformer language model on a CPU, tuned for ten minutes."""

from __future__ import annotations

import dataclasses
import json
import math
import random
from collections.abc import Callable
from typing import Any

import pytest

from fulltilt.records.codec import to_plain
from fulltilt.records.journal import (
    Block,
    ComparisonRecord,
    PairedBlock,
    PairRecord,
    SpeedupInterval,
    TrialRecord,
    VerdictRecord,
)
from fulltilt.records.record import LoaderRecord, ModuleRecord, OptimizerRecord, PhaseRecord, SiteRecord
from fulltilt.records.request import TechniqueChoice
from fulltilt.records.result import (
    AblationResult,
    MachineRecord,
    ProtectionRecord,
    RecipeResult,
    TechniqueResult,
    TuneResult,
)
from fulltilt.records.words import Numerics, Outcome, Protection, Role, TechniqueOutcome

PRECISION = TechniqueChoice(name="precision", options={"dtype": "bfloat16"})
FUSED = TechniqueChoice(name="fused_optimizer")
COMPILE = TechniqueChoice(name="compile", options={"scope": "regions"})
THREADS = TechniqueChoice(name="cpu_threads", options={"num_threads": 4})
STEP_SECONDS = 0.1824
HOSTILE = (
    "<script>alert('x')</script> | `rm` \udcff\x00 \x1b[31mred\x1b[0m \u202egnp.exe [bold]b[/bold]\nline \"two\" $x$"
)
"""Markup of every kind that is rendered here, a byte that is no UTF-8, control characters, and a line feed."""


def interval(median: float, half: float = 0.03, **changes: Any) -> SpeedupInterval:
    """An interval of about +-`half` around `median`."""
    fields: dict[str, Any] = {
        "median": median,
        "low": median / (1 + half),
        "high": median * (1 + half),
        "confidence": 0.95,
        "num_pairs": 1,
        "num_blocks": 12,
        "num_busy_blocks": 1,
        "p_value": 0.001,
    }
    return SpeedupInterval(**{**fields, **changes})


def verdict(numerics: Numerics = Numerics.ROUNDING, *, broken: tuple[str, ...] = ()) -> VerdictRecord:
    """Evidence as a judge words it."""
    evidence = (
        "Losses of the first 8 steps differ by 3.1e-04 at most, 1.9e-03 is allowed (step 7).",
        "Gradient norms differ by 2.4e-03 at most, 8.8e-03 is allowed (step 3).",
        "Parameters after 8 steps are 1.6e-03 apart at most, 4.0e-03 is allowed (blocks.5.mlp.2.weight).",
        "The same 76 parameters received gradients.",
        "All buffers are equal.",
        "state_dict has the same 77 keys with the same dtypes; tied weights (1 pair) are still tied.",
        "Every optimizer made the same number of steps: AdamW 8.",
        "Random draws are the same.",
    )
    return VerdictRecord(numerics=numerics, kept=not broken, evidence=(*evidence, *broken), broken=broken)


def technique(
    name: str, outcome: TechniqueOutcome, reason: str, *, options: dict[str, Any] | None = None, **fields: Any
) -> TechniqueResult:
    return TechniqueResult(name=name, options=options or {}, outcome=outcome, reason=reason, **fields)


def comparison(
    purpose: str,
    a: tuple[TechniqueChoice, ...],
    b: tuple[TechniqueChoice, ...],
    *,
    ratio: float,
    num_pairs: int = 1,
    num_blocks: int = 12,
    seed: int = 0,
) -> ComparisonRecord:
    """A comparison with blocks around `ratio`, every seventh or so of them disturbed."""
    stream = random.Random(f"{purpose}-{ratio}-{seed}")
    pairs = tuple(
        PairRecord(
            a_trial=f"{2 * number:03d}-a",
            b_trial=f"{2 * number + 1:03d}-b",
            blocks=tuple(_block(stream, ratio, index) for index in range(num_blocks)),
            warmup_steps=6,
        )
        for number in range(num_pairs)
    )
    num_busy = sum(block.busy for pair in pairs for block in pair.blocks)
    return ComparisonRecord(
        key=json.dumps([purpose, to_plain(a), to_plain(b)], sort_keys=True),
        a=a,
        b=b,
        pairs=pairs,
        speedup=interval(
            ratio,
            0.02,
            num_pairs=num_pairs,
            num_blocks=num_pairs * num_blocks - num_busy,
            num_busy_blocks=num_busy,
        ),
        wall_seconds=41.0,
    )


def _block(stream: random.Random, ratio: float, index: int) -> PairedBlock:
    busy = stream.random() < 0.14
    noise = math.exp(stream.gauss(0.0, 0.012) + (stream.choice((-0.12, 0.15)) if busy else 0.0))
    a_seconds = 10 * STEP_SECONDS
    return PairedBlock(
        a=Block(num_steps=10, seconds=a_seconds),
        b=Block(num_steps=10, seconds=a_seconds / (ratio * noise)),
        a_first=index % 2 == 0,
        busy=busy,
    )


def _techniques() -> tuple[TechniqueResult, ...]:
    outcome = TechniqueOutcome
    return (
        technique(
            "precision",
            outcome.KEPT,
            "autocast to bfloat16 around Transformer; 49 linear layers ran in bfloat16",
            options={"dtype": "bfloat16"},
            speedup=interval(1.412, 0.022),
            verdict=verdict(),
        ),
        technique(
            "fused_optimizer",
            outcome.KEPT,
            "AdamW switched from for-loop to fused",
            speedup=interval(1.149, 0.017),
            verdict=verdict(Numerics.ROUNDING),
        ),
        technique(
            "compile",
            outcome.NO_GAIN,
            "slower (6 blocks of class Block compiled, 1 graph, no recompile)",
            options={"scope": "regions"},
            speedup=interval(0.874, 0.02, p_value=0.0004),
            verdict=verdict(),
        ),
        technique(
            "channels_last",
            outcome.NO_EFFECT,
            "the model has no convolution: there is no layout to choose",
            speedup=interval(1.0, 0.004, p_value=0.9),
        ),
        technique(
            "dataloader",
            outcome.NO_GAIN,
            "waiting for data takes 1 % of a step: it could gain 1 % at most",
        ),
        technique(
            "gc_freeze",
            outcome.NO_GAIN,
            "no difference that could be told from chance (41,208 objects frozen)",
            speedup=interval(1.004, 0.011, p_value=0.5),
            verdict=verdict(Numerics.EXACT),
        ),
        technique(
            "cpu_threads",
            outcome.NO_GAIN,
            "no difference that could be told from chance (4 intra-op threads instead of 8)",
            options={"num_threads": 4},
            speedup=interval(0.991, 0.021, p_value=0.4),
            verdict=verdict(),
        ),
        technique("cudnn_benchmark", outcome.REFUSED, "it needs a CUDA device; the model is on the CPU"),
    )


def _trial(number: int, name: str, role: Role, *techniques: TechniqueChoice, **changes: Any) -> TrialRecord:
    fields: dict[str, Any] = {
        "trial": f"{number:03d}-{name}" if number else name,
        "role": role,
        "techniques": techniques,
        "outcome": Outcome.FINISHED,
        "num_steps": 160,
        "wall_seconds": 34.2,
        "startup_seconds": 3.1,
    }
    return TrialRecord(**{**fields, **changes})


def _trials() -> tuple[TrialRecord, ...]:
    return (
        _trial(0, "baseline", Role.BASELINE, num_steps=48, wall_seconds=14.0),
        _trial(0, "repeat", Role.REPEAT, num_steps=8, wall_seconds=5.2),
        _trial(1, "plain", Role.CANDIDATE),
        _trial(0, "rounding-3.9e-03-1", Role.ROUNDING, num_steps=8, wall_seconds=5.3),
        _trial(2, "precision", Role.CANDIDATE, PRECISION),
        _trial(3, "precision+fused_optimizer", Role.CANDIDATE, PRECISION, FUSED),
        _trial(4, "precision+fused_optimizer+compile", Role.CANDIDATE, PRECISION, FUSED, COMPILE, startup_seconds=21.4),
        _trial(
            5,
            "precision+fused_optimizer+cpu_threads",
            Role.CANDIDATE,
            PRECISION,
            FUSED,
            THREADS,
            outcome=Outcome.HANG,
            num_steps=31,
            message="No step for 60 s; the last one was step 31.\nIt was ended by SIGKILL.",
            startup_seconds=None,
        ),
    )


def _site() -> SiteRecord:
    return SiteRecord(
        device="cpu",
        device_name="",
        modules=(
            ModuleRecord(
                name="Transformer",
                class_name="Transformer",
                num_parameters=10_745_088,
                num_trainable=10_745_088,
                dtypes=("float32",),
                layer_counts={"Linear": 49, "LayerNorm": 13, "Embedding": 2},
                stable_shapes=True,
                num_input_shapes=1,
            ),
        ),
        optimizers=(
            OptimizerRecord(
                name="AdamW",
                class_name="AdamW",
                num_parameters=76,
                implementation="for-loop",
                sparse_gradients=False,
                uses_closure=False,
            ),
        ),
        loaders=(
            LoaderRecord(
                dataset_class="TensorDataset",
                iterable=False,
                batch_size=32,
                num_workers=0,
                pin_memory=False,
                persistent_workers=False,
                in_memory=True,
            ),
        ),
    )


def _machine() -> MachineRecord:
    return MachineRecord(
        hostname_hash="5f0c1e77ab21",
        system="Linux x86_64",
        cpu="Intel(R) Xeon(R) Platinum 8480+",
        num_cpus=8,
        memory_bytes=32 * 2**30,
        python="3.11.9",
        torch="2.13.0+cpu",
        device="cpu",
        num_threads=8,
        cpu_capability="AVX512 avx2 avx512f avx512_bf16 amx_tile amx_bf16",
    )


def _result() -> TuneResult:
    return TuneResult(
        command=("python", "train.py", "--lr", "3e-4", "--data", "shake speare.txt"),
        machine=_machine(),
        baseline_step_seconds=STEP_SECONDS,
        speedup=interval(1.618, 0.0, low=1.552, high=1.697, num_pairs=2, num_blocks=22, num_busy_blocks=2),
        verdict=verdict(),
        recipe=RecipeResult(
            techniques=(PRECISION, FUSED),
            fingerprint={
                "command": "python train.py --lr 3e-4 --data 'shake speare.txt'",
                "torch": "2.13.0+cpu",
                "python": "3.11.9",
                "device": "Intel(R) Xeon(R) Platinum 8480+",
                "threads": "8",
                "model": "Transformer (10745088 parameters)",
            },
        ),
        techniques=_techniques(),
        ablation=(
            AblationResult(name="precision", contribution=interval(1.39, 0.03), note="pays"),
            AblationResult(name="fused_optimizer", contribution=interval(1.15, 0.02), note="pays"),
        ),
        break_even_steps=37,
        trials=_trials(),
        wall_seconds=583.0,
        summary="precision + fused_optimizer: 1.62x faster [1.55, 1.70] than a step of 182 ms, numbers kept.",
        phases=PhaseRecord(
            num_steps=24,
            step_seconds=STEP_SECONDS,
            data_wait=0.0011,
            forward=0.0571,
            backward=0.0874,
            optimizer=0.0312,
            other=0.0056,
        ),
        site=_site(),
        aa_floor=0.014,
        protection=ProtectionRecord(means=Protection.OVERLAY),
        confirmed=True,
        warnings=("The machine was busy in 2 of 24 blocks of the confirmation; they are not counted.",),
        details={"total_steps": None, "block_steps": 10},
    )


@pytest.fixture
def result() -> TuneResult:
    """1.62x faster with precision and fused_optimizer."""
    return _result()


@pytest.fixture
def nothing_helps(result: TuneResult) -> TuneResult:
    """A finished tune without a recipe."""
    unmoved = interval(1.0, 0.0, num_pairs=0, num_blocks=0)
    techniques = tuple(
        dataclasses.replace(tried, outcome=TechniqueOutcome.NO_GAIN, speedup=interval(1.003, 0.01), reason="no gain")
        if tried.outcome is TechniqueOutcome.KEPT
        else tried
        for tried in result.techniques
    )
    return dataclasses.replace(
        result,
        speedup=unmoved,
        verdict=VerdictRecord(numerics=Numerics.EXACT, kept=True, evidence=("Nothing is changed.",)),
        recipe=dataclasses.replace(result.recipe, techniques=()),
        techniques=techniques,
        ablation=(),
        break_even_steps=None,
        confirmed=False,
        summary="Nothing that was tried makes this command faster; a step takes 182 ms as it is.",
        warnings=(),
    )


@pytest.fixture
def interrupted(nothing_helps: TuneResult) -> TuneResult:
    """Interrupted before any technique was tried: hardly anything is known."""
    return dataclasses.replace(
        nothing_helps,
        techniques=(),
        trials=nothing_helps.trials[:1],
        phases=None,
        site=None,
        aa_floor=0.0,
        finished=False,
        summary="Interrupted before a recipe was confirmed; a step takes 182 ms as it is.",
    )


@pytest.fixture
def every_outcome(result: TuneResult) -> TuneResult:
    """One technique of each outcome, and the words of the user's hostile."""
    techniques = tuple(
        technique(f"t_{outcome.value}", outcome, HOSTILE, options={"mode": HOSTILE}, speedup=interval(1.0, 0.001))
        for outcome in TechniqueOutcome
    )
    broken = dataclasses.replace(
        techniques[3], verdict=verdict(broken=(f"The loss of step 3 is nan, 2.31 in the baseline. {HOSTILE}",))
    )
    return dataclasses.replace(
        result,
        techniques=(*techniques[:3], broken, *techniques[4:]),
        command=("python", HOSTILE, "*.py"),
        warnings=(HOSTILE,),
        summary=HOSTILE,
        trials=(_trial(9, HOSTILE, Role.CANDIDATE, outcome=Outcome.EXCEPTION, exit_status=1, message=HOSTILE * 200),),
        ablation=(AblationResult(name="precision", contribution=None, note=HOSTILE),),
        machine=dataclasses.replace(result.machine, cpu=HOSTILE),
        protection=ProtectionRecord(means=Protection.REDIRECTED, reason=HOSTILE),
        confirmed=False,
        finished=False,
    )


@pytest.fixture
def comparisons() -> list[ComparisonRecord]:
    """Those of `result`, as a journal has them: the confirmation last."""
    both = (PRECISION, FUSED)
    return [
        comparison("aa", (), (), ratio=1.004),
        comparison("climb", (), (PRECISION,), ratio=1.412),
        comparison("climb", (PRECISION,), both, ratio=1.149),
        comparison("climb", both, (*both, COMPILE), ratio=0.874),
        ComparisonRecord(key='["climb", [], []]', a=both, b=(*both, THREADS), failure="no step for 60 s"),
        comparison("ablate", both, (FUSED,), ratio=0.72),
        comparison("confirm", (), both, ratio=1.618, num_pairs=2),
    ]


@pytest.fixture
def compare() -> Callable[..., ComparisonRecord]:
    """Makes a comparison: purpose, a, b, and the ratio that its blocks lie around."""
    return comparison


@pytest.fixture
def speedup() -> Callable[..., SpeedupInterval]:
    """Makes an interval: its median, its relative half width, and what else is to differ."""
    return interval


@pytest.fixture
def hostile() -> str:
    """Text that would do harm where it is not escaped."""
    return HOSTILE
