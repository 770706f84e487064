"""What the parent decides about techniques, from records alone."""

import dataclasses
import math

import pytest

from fulltilt.records.record import LoaderRecord, ModuleRecord, OptimizerRecord, PhaseRecord, RegionRecord, SiteRecord
from fulltilt.records.result import MachineRecord
from fulltilt.techniques import NAMES, all_specs, spec_of

CPU = MachineRecord(
    hostname_hash="h", system="Linux", cpu="c", num_cpus=8, memory_bytes=1, device="cpu", num_threads=4,
    cpu_capability="AVX512 avx512f amx_tile amx_bf16",
)  # fmt: skip
OLD_CPU = dataclasses.replace(CPU, cpu_capability="AVX2 avx2")
ONE_CPU = dataclasses.replace(CPU, num_cpus=1, num_threads=1)
A100 = dataclasses.replace(CPU, device="cuda", device_name="NVIDIA A100-SXM4-80GB")
T4 = dataclasses.replace(CPU, device="cuda", device_name="Tesla T4")
PHASES = PhaseRecord(
    num_steps=8, step_seconds=1.0, data_wait=0.2, forward=0.2, backward=0.3, optimizer=0.25, other=0.05
)
UNMEASURED = PhaseRecord(
    num_steps=8, step_seconds=1.0, data_wait=None, forward=None, backward=None, optimizer=None, other=None
)
MODULE = ModuleRecord(
    name="Net#0", class_name="Net", num_parameters=10, num_trainable=10, dtypes=("float32",),
    layer_counts={"Conv2d": 1, "Linear": 1}, stable_shapes=True, num_input_shapes=1,
    regions=(RegionRecord(class_name="Block", names=("a", "b"), stable_shapes=True),),
)  # fmt: skip
OPTIMIZER = OptimizerRecord(
    name="AdamW#0", class_name="AdamW", num_parameters=10, implementation="for-loop", sparse_gradients=False,
    uses_closure=False,
)  # fmt: skip
LOADER = LoaderRecord(
    dataset_class="Images", iterable=False, batch_size=8, num_workers=0, pin_memory=False, persistent_workers=False,
    in_memory=False,
)  # fmt: skip
SITE = SiteRecord(device="cpu", device_name="", modules=(MODULE,), optimizers=(OPTIMIZER,), loaders=(LOADER,))
CUDA_SITE = dataclasses.replace(SITE, device="cuda")


def with_module(site=SITE, **changes):
    return dataclasses.replace(site, modules=(dataclasses.replace(MODULE, **changes),))


def with_optimizer(**changes):
    return dataclasses.replace(SITE, optimizers=(dataclasses.replace(OPTIMIZER, **changes),))


def with_loader(**changes):
    return dataclasses.replace(SITE, loaders=(dataclasses.replace(LOADER, **changes),))


def options_of(name, machine=CPU, site=SITE, phases=PHASES):
    return [dataclasses.asdict(options) for options in spec_of(name).candidates(machine, site, phases)]


@pytest.mark.parametrize("name", NAMES)
def test_names_are_those_of_the_folders(name):
    assert spec_of(name).name == name


def test_after_and_conflicts_name_known_techniques():
    for spec in all_specs():
        assert {*spec.after, *spec.conflicts} <= set(NAMES)


@pytest.mark.parametrize(("machine", "site"), [(CPU, SITE), (OLD_CPU, SITE), (A100, CUDA_SITE), (T4, CUDA_SITE)])
def test_candidates_are_options_each_once(machine, site):
    for spec in all_specs():
        candidates = spec.candidates(machine, site, PHASES)
        assert all(type(options) is spec.options for options in candidates)
        assert len(set(candidates)) == len(candidates)


@pytest.mark.parametrize(
    ("machine", "site", "dtypes"),
    [(CPU, SITE, ["bfloat16"]), (OLD_CPU, SITE, []), (A100, CUDA_SITE, ["bfloat16"]), (T4, CUDA_SITE, ["float16"])],
)
def test_the_precision_is_what_the_hardware_computes(machine, site, dtypes):
    assert [options["dtype"] for options in options_of("precision", machine, site)] == dtypes


@pytest.mark.parametrize(
    ("machine", "site", "precisions"), [(CPU, SITE, ["medium"]), (OLD_CPU, SITE, []), (A100, CUDA_SITE, ["high"])]
)
def test_products_are_rounded_where_the_hardware_can(machine, site, precisions):
    assert [options["precision"] for options in options_of("matmul_precision", machine, site)] == precisions


def test_numbers_of_threads_differ_from_the_present_one():
    assert [options["num_threads"] for options in options_of("cpu_threads")] == [8, 1]
    assert options_of("cpu_threads", A100, CUDA_SITE) == []


def test_regions_come_before_the_model_and_cuda_graphs_only_on_cuda():
    found = [(options["scope"], options["mode"]) for options in options_of("compile")]
    assert found == [("regions", "default"), ("model", "default")]
    assert ("model", "reduce-overhead") in [
        (options["scope"], options["mode"]) for options in options_of("compile", A100, CUDA_SITE)
    ]


def test_only_stable_regions_are_compiled_where_the_model_sees_many_shapes():
    site = with_module(stable_shapes=False, num_input_shapes=7)
    assert [options["scope"] for options in options_of("compile", site=site)] == ["regions"]
    assert spec_of("compile").unavailable(CPU, site) is None


def test_implementations_are_offered_where_the_optimizer_has_them():
    assert [o["implementation"] for o in options_of("fused_optimizer")] == ["fused", "foreach"]
    rmsprop = with_optimizer(class_name="RMSprop")
    assert [o["implementation"] for o in options_of("fused_optimizer", site=rmsprop)] == ["foreach"]
    foreach = with_optimizer(implementation="foreach")
    assert [o["implementation"] for o in options_of("fused_optimizer", site=foreach)] == ["fused"]


def test_workers_are_tried_where_the_loop_waits():
    assert [options["num_workers"] for options in options_of("dataloader")] == [4, 8, 2]
    quick = dataclasses.replace(PHASES, data_wait=0.01)
    assert options_of("dataloader", phases=quick) == []
    assert {options["pin_memory"] for options in options_of("dataloader", A100, CUDA_SITE)} == {True}


@pytest.mark.parametrize(
    ("name", "machine", "site", "reason"),
    [
        ("cpu_threads", ONE_CPU, SITE, "one CPU"),
        ("cpu_threads", A100, CUDA_SITE, "computes on cuda"),
        ("matmul_precision", CPU, with_module(dtypes=("float64",)), "float64"),
        ("matmul_precision", CPU, dataclasses.replace(SITE, double_backward=True), "create_graph"),
        ("matmul_precision", CPU, with_optimizer(uses_closure=True), "closure"),
        ("cudnn_benchmark", CPU, SITE, "CUDA devices only"),
        ("cudnn_benchmark", A100, with_module(CUDA_SITE, layer_counts={"Linear": 2}), "no convolutions"),
        ("cudnn_benchmark", A100, with_module(CUDA_SITE, stable_shapes=False), "shapes vary"),
        ("channels_last", CPU, with_module(layer_counts={"Linear": 2}), "no 2-D convolutions"),
        ("precision", CPU, with_module(dtypes=("float64",)), "float64"),
        ("precision", CPU, with_module(dtypes=("bfloat16", "float32")), "half precision already"),
        ("precision", CPU, with_module(dtypes=("complex64", "float32")), "complex"),
        ("precision", CPU, dataclasses.replace(SITE, autocast_by_user="bfloat16"), "autocast"),
        ("precision", CPU, dataclasses.replace(SITE, grad_scaler_by_user=True), "scales its loss"),
        ("precision", CPU, with_optimizer(uses_closure=True), "closure"),
        ("precision", CPU, dataclasses.replace(SITE, double_backward=True), "create_graph"),
        ("compile", CPU, dataclasses.replace(SITE, double_backward=True), "create_graph"),
        ("compile", CPU, with_module(compiled_by_user=True), "compiles its model itself"),
        ("compile", CPU, with_module(stable_shapes=False, num_input_shapes=9, regions=()), "9 different"),
        ("fused_optimizer", CPU, with_optimizer(sparse_gradients=True), "sparse"),
        ("fused_optimizer", CPU, with_optimizer(implementation="fused"), "fused already"),
        ("fused_optimizer", CPU, with_optimizer(implementation="unknown"), "one implementation"),
        ("dataloader", CPU, dataclasses.replace(SITE, loaders=()), "no DataLoader"),
        ("dataloader", CPU, with_loader(iterable=True), "repeated"),
        ("dataloader", CPU, with_loader(in_memory=True), "in memory"),
    ],
)
def test_a_reason_is_given_where_it_does_not_fit(name, machine, site, reason):
    found = spec_of(name).unavailable(machine, site)
    assert found is not None
    assert reason in found


@pytest.mark.parametrize("name", [name for name in NAMES if name != "cudnn_benchmark"])
def test_nothing_speaks_against_a_common_script(name):
    assert spec_of(name).unavailable(CPU, SITE) is None
    assert spec_of(name).unavailable(CPU, None) is None


def test_a_machine_without_a_cpp_compiler_cannot_compile_for_its_cpu(monkeypatch):
    monkeypatch.setattr("shutil.which", lambda name: None)
    assert "C++ compiler" in spec_of("compile").unavailable(CPU, None)
    assert spec_of("compile").unavailable(A100, CUDA_SITE) is None


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("fused_optimizer", 1 / 0.75),
        ("dataloader", 1 / 0.8),
        ("precision", 2.0),
        ("compile", 2.0),
        ("channels_last", 2.0),
        ("matmul_precision", 2.0),
        ("cudnn_benchmark", 2.0),
        ("gc_freeze", 1 / 0.95),
        ("cpu_threads", math.inf),
    ],
)
def test_bounds_follow_from_the_phases(name, expected):
    assert spec_of(name).bound(PHASES, SITE) == pytest.approx(expected)


@pytest.mark.parametrize("name", [name for name in NAMES if name != "gc_freeze"])
def test_phases_that_were_not_measured_bound_nothing(name):
    assert spec_of(name).bound(UNMEASURED, SITE) == math.inf


def test_roundings_are_those_of_the_formats():
    precision, products = spec_of("precision"), spec_of("matmul_precision")
    assert precision.rounding(precision.options()) == 2.0**-8
    assert precision.rounding(precision.options(dtype="float16")) == 2.0**-11
    assert products.rounding(products.options()) == 2.0**-11
    assert products.rounding(products.options(precision="medium")) == 2.0**-8
