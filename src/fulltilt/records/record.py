"""What a worker leaves behind: `record.json` in the trial's directory."""

from dataclasses import dataclass, field
from typing import Any

from fulltilt.records.curve import CurveRecord

RECORD_SCHEMA = 1
SKETCH_SIZE = 64


@dataclass(frozen=True, kw_only=True, slots=True)
class TensorSketch:
    """A tensor in 65 numbers: its norm, and a count sketch of it.

    The sketch is linear: the sketch of a difference is the difference of the sketches, and its Euclidean norm estimates
    the norm of the tensor within about 1/sqrt(2 * 64) = 9 % (Charikar, Chen, Farach-Colton 2002). So the distance
    between two tensors that never met in one process can be told from their sketches.
    """

    norm: float
    """Euclidean norm, accumulated in float64; nan or inf where the tensor is not finite."""
    projection: tuple[float, ...]
    """Sums of the elements with pseudo-random signs, in 64 buckets (fewer for smaller tensors)."""
    numel: int


@dataclass(frozen=True, kw_only=True, slots=True)
class ParameterEvidence:
    """One parameter that an optimizer holds."""

    shape: tuple[int, ...]
    dtype: str
    start: TensorSketch
    """Before the first optimizer step."""
    end: TensorSketch | None = None
    """After the last recorded step."""
    first_gradient: TensorSketch | None = None
    """At the first optimizer step; None when it has received none."""


@dataclass(frozen=True, kw_only=True, slots=True)
class InputEvidence:
    """One tensor that the user's code handed to a root module in training."""

    name: str
    """"Net#0.0" for the first positional tensor of the root module Net#0."""
    kind: str
    """Dtype and shape: "float32 [16, 3, 8, 8]"."""
    values: TensorSketch
    """In four buckets."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RowCount:
    """Rows (samples) of one input over all recorded steps."""

    distinct: int
    total: int


@dataclass(frozen=True, kw_only=True, slots=True)
class HeldTensor:
    """A tensor that the script keeps besides parameters and buffers: an average of the weights, a queue, a mask."""

    start: TensorSketch
    """After the first step."""
    end: TensorSketch
    """After the last recorded step."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Evidence:
    """The numbers of the first training steps, as its verdict needs them."""

    num_steps: int
    losses: tuple[tuple[float, ...], ...]
    """For each step the value of each scalar that backward was called on, in order."""
    gradient_norms: tuple[float, ...]
    """For each step the Euclidean norm of all gradients as the optimizer got them."""
    parameters: dict[str, ParameterEvidence]
    buffers: dict[str, TensorSketch]
    """After the last recorded step."""
    state_dict: dict[str, str]
    """Key -> "dtype shape" of the state_dict of every root module, with the type of the root."""
    optimizer_state: dict[str, str]
    """Key -> "type" of what optimizers would save: group keys with their plain values, state keys with dtype."""
    aliases: tuple[tuple[str, ...], ...]
    """Names that share one storage (tied weights)."""
    executed_steps: dict[str, int]
    """Optimizer (class and order of appearance) -> steps executed."""
    draws: str
    """Hash of the states of torch's, Python's and NumPy's random generators after the last recorded step."""
    inputs: tuple[tuple[InputEvidence, ...], ...] = ()
    """For each step what root modules were given, in the order of their calls."""
    modes: tuple[str, ...] = ()
    """For each step the modules that were in evaluation mode while their root was called: "Net#0.drop, Net#0.norm"."""
    rows: dict[str, RowCount] = field(default_factory=dict)
    """Name of an input -> its rows."""
    held: dict[str, HeldTensor] = field(default_factory=dict)
    """Where the script holds it ("main: ema.shadow['fc.weight']") -> the tensor."""
    generators: dict[str, str] = field(default_factory=dict)
    """Where the script holds it -> hash of the state of a private random generator after the last recorded step."""
    loaders: dict[str, str] = field(default_factory=dict)
    """DataLoader (order of appearance) -> "12 batches of 8, 90 samples", as far as it knows."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RegionRecord:
    """Modules of one class that repeat in a ModuleList or Sequential."""

    class_name: str
    names: tuple[str, ...]
    stable_shapes: bool
    """Were the input shapes of all calls the same?"""


@dataclass(frozen=True, kw_only=True, slots=True)
class ModuleRecord:
    """A root module: one that is called by the user's code, not by another module, in training."""

    name: str
    class_name: str
    num_parameters: int
    num_trainable: int
    dtypes: tuple[str, ...]
    layer_counts: dict[str, int]
    """Class name of leaf layers -> how many."""
    stable_shapes: bool
    num_input_shapes: int
    regions: tuple[RegionRecord, ...] = ()
    compiled_by_user: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class OptimizerRecord:
    name: str
    class_name: str
    num_parameters: int
    implementation: str
    """"fused", "foreach", "for-loop", or "unknown" where the class has no such choice."""
    sparse_gradients: bool
    uses_closure: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class LoaderRecord:
    dataset_class: str
    iterable: bool
    batch_size: int | None
    num_workers: int
    pin_memory: bool
    persistent_workers: bool
    in_memory: bool
    """A TensorDataset or a list of tensors: workers cannot make it faster."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SiteRecord:
    """What was found in the user's process."""

    device: str
    device_name: str
    modules: tuple[ModuleRecord, ...] = ()
    optimizers: tuple[OptimizerRecord, ...] = ()
    loaders: tuple[LoaderRecord, ...] = ()
    autocast_by_user: str = ""
    """dtype of an autocast region that the user's code opens itself; empty when there is none."""
    grad_scaler_by_user: bool = False
    double_backward: bool = False
    """create_graph=True was seen."""
    custom_functions: tuple[str, ...] = ()
    """autograd.Function classes of the user's own."""
    backwards_per_step: float = 1.0
    world_size: int = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class PhaseRecord:
    """Mean seconds per step of each phase; None means not measured, never 0."""

    num_steps: int
    step_seconds: float
    data_wait: float | None
    forward: float | None
    backward: float | None
    optimizer: float | None
    other: float | None


@dataclass(frozen=True, kw_only=True, slots=True)
class AppliedRecord:
    """What became of one technique in this process."""

    name: str
    outcome: str
    """"applied" (and engaged), "no_effect", "failed"; "pending" when its moment never came."""
    detail: str
    """What was done, or why not."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ExceptionRecord:
    type_name: str
    type_names: tuple[str, ...]
    """Qualified names of the class and its bases."""
    message: str
    where: str
    """Innermost frame in the user's code: file:line in function."""
    traceback: str


@dataclass(frozen=True, kw_only=True, slots=True)
class FailureRecord:
    """One process of a trial that ended with an exception: any rank, any child, a launcher."""

    pid: int
    rank: str
    """Of the environment variable RANK; empty outside of a process group."""
    moment: float
    """Seconds since the epoch: the first failure is the cause of those that follow."""
    exception: ExceptionRecord


@dataclass(frozen=True, kw_only=True, slots=True)
class Environment:
    """The worker's software and device, for the fingerprint."""

    python: str
    torch: str
    device: str
    device_name: str
    num_threads: int
    cpu_capability: str
    details: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkerRecord:
    trial: str
    pid: int
    argv: tuple[str, ...]
    environment: Environment
    site: SiteRecord | None = None
    applied: tuple[AppliedRecord, ...] = ()
    phases: PhaseRecord | None = None
    evidence: Evidence | None = None
    exception: ExceptionRecord | None = None
    num_steps: int = 0
    """Training steps made in all."""
    startup_seconds: float | None = None
    """From the start of the process to its first training call."""
    notes: tuple[str, ...] = ()
    curve: CurveRecord | None = None
    """Of a long run, which has no evidence."""
    not_finite_steps: tuple[int, int] | None = None
    """First and last step of the block of steps in which weights became nan or infinite, after the evidence."""
    schema: int = RECORD_SCHEMA
