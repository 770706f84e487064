"""What a long run leaves: the loss of every training step, and what was evaluated between them."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class EvaluationPoint:
    """One evaluation: calls of a loss function of torch without gradients, with no training step between them."""

    num_steps: int
    """Training steps made before it."""
    mean: float
    """Of the values of all its calls."""
    num_calls: int


@dataclass(frozen=True, kw_only=True, slots=True)
class CurveRecord:
    """The numbers of a whole run, in order."""

    num_steps: int
    losses: dict[str, tuple[float, ...]]
    """Optimizer (class and order of appearance; "" where there is none) -> for each of its steps the mean of the
    scalars that backward was called on since the optimizer step before: a GAN has a curve for each side, accumulated
    batches are one point."""
    evaluations: dict[str, tuple[EvaluationPoint, ...]]
    """Loss function ("cross_entropy") -> what was evaluated with it."""
    stride: int = 1
    """How many steps of its optimizer each loss is the mean of."""
