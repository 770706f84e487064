"""Says what was found in the user's process: the site as a record."""

from __future__ import annotations

import collections
import gc
import os
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

from fulltilt.records.record import LoaderRecord, ModuleRecord, OptimizerRecord, RegionRecord, SiteRecord
from fulltilt.tap.site import TapSite

Shapes = tuple[Any, ...]


class Observer:
    """What is seen of the script in its first steps, beyond the objects themselves."""

    def __init__(self) -> None:
        self.input_shapes: dict[int, set[Shapes]] = collections.defaultdict(set)
        self.autocast = ""
        self.double_backward = False
        self.custom_functions: dict[str, None] = {}
        self.num_backwards = 0
        self.num_steps = 0
        self.sparse: set[int] = set()
        self.closures: set[int] = set()
        self._handles: list[Any] = []

    def watch(self, module: nn.Module) -> None:
        """Note the input shapes of this root and of its repeated blocks from here on."""
        if isinstance(module, torch.jit.ScriptModule) or type(module).__name__ == "OptimizedModule":
            return  # the first takes no such hooks, the second would compile them in
        blocks = [block for blocks in repeated_blocks(module).values() for _, block in blocks]
        for watched in (module, *blocks):
            hook = _shape_hook(self.input_shapes[id(watched)])
            self._handles.append(watched.register_forward_pre_hook(hook, with_kwargs=True))
        for layer in module.modules():  # an autocast region may be opened inside of the root's forward
            if next(layer.children(), None) is None:
                self._handles.append(layer.register_forward_pre_hook(lambda layer, args: self.look_for_autocast()))

    def look_for_autocast(self) -> None:
        """Note the precision of an autocast region that is open now."""
        device = "cuda" if torch.cuda.is_available() else "cpu"
        if torch.is_autocast_enabled(device):
            self.autocast = str(torch.get_autocast_dtype(device)).removeprefix("torch.")

    def backward_called(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.num_backwards += 1
        if kwargs.get("create_graph") or (len(args) > 3 and args[3]):
            self.double_backward = True
        tensors = args[0] if args else kwargs.get("tensors", ())
        for tensor in (tensors,) if isinstance(tensors, torch.Tensor) else tuple(tensors):
            self._walk_graph(tensor)

    def before_step(self, optimizer: torch.optim.Optimizer) -> None:
        if any(p.grad is not None and p.grad.layout is not torch.strided for p in _parameters(optimizer)):
            self.sparse.add(id(optimizer))

    def stop(self) -> None:
        """Take the hooks off: they are for the first steps only."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()

    def _walk_graph(self, tensor: torch.Tensor, limit: int = 20_000) -> None:
        """Names of the user's own autograd.Function classes in the graph of `tensor`."""
        todo: list[Any] = [tensor.grad_fn]
        seen: set[Any] = set()
        while todo and len(seen) < limit:
            node = todo.pop()
            if node is None or node in seen:
                continue
            seen.add(node)
            module = type(node).__module__
            if module not in ("builtins", "torch") and not module.startswith("torch."):
                self.custom_functions[type(node).__name__.removesuffix("Backward")] = None
            todo.extend(parent for parent, _ in node.next_functions)


def describe(site: TapSite, seen: Observer) -> SiteRecord:
    """The site as a record."""
    device = site.device
    return SiteRecord(
        device=device.type,
        device_name=torch.cuda.get_device_name(device) if device.type == "cuda" else "",
        modules=tuple(_module(name, module, seen) for name, module in site.modules.items()),
        optimizers=tuple(_optimizer(name, optimizer, seen) for name, optimizer in site.optimizers.items()),
        loaders=tuple(_loader(loader) for loader in site.loaders),
        autocast_by_user=seen.autocast,
        grad_scaler_by_user=_any_enabled_scaler(),
        double_backward=seen.double_backward,
        custom_functions=tuple(seen.custom_functions),
        backwards_per_step=seen.num_backwards / max(1, seen.num_steps),
        world_size=int(os.environ.get("WORLD_SIZE", "1") or 1),
    )


def _any_enabled_scaler() -> bool:
    """Does the script scale its loss? Asked once: it looks through all objects."""
    return any(issubclass(type(found), torch.amp.GradScaler) and found.is_enabled() for found in gc.get_objects())


def repeated_blocks(root: nn.Module) -> dict[str, list[tuple[str, nn.Module]]]:
    """Class name -> (path, module) of modules of one class that repeat in a ModuleList or Sequential, outermost."""
    found: dict[str, list[tuple[str, nn.Module]]] = {}
    _collect_blocks(root, "", found)
    return found


def _collect_blocks(module: nn.Module, prefix: str, found: dict[str, list[tuple[str, nn.Module]]]) -> None:
    for name, child in module.named_children():
        path = f"{prefix}{name}"
        taken: set[int] = set()
        if isinstance(child, nn.ModuleList | nn.Sequential):
            counts = collections.Counter(type(block) for block in child if next(block.children(), None) is not None)
            for block_name, block in child.named_children():
                if counts[type(block)] >= 2:
                    found.setdefault(type(block).__name__, []).append((f"{path}.{block_name}", block))
                    taken.add(id(block))
        for block_name, block in child.named_children() if taken else ():
            if id(block) not in taken:
                _collect_blocks(block, f"{path}.{block_name}.", found)
        if not taken:
            _collect_blocks(child, f"{path}.", found)


def _module(name: str, module: nn.Module, seen: Observer) -> ModuleRecord:
    shapes = seen.input_shapes[id(module)]
    leaves = collections.Counter(
        type(layer).__name__ for layer in module.modules() if next(layer.children(), None) is None
    )
    return ModuleRecord(
        name=name,
        class_name=type(module).__name__,
        num_parameters=sum(p.numel() for p in module.parameters()),
        num_trainable=sum(p.numel() for p in module.parameters() if p.requires_grad),
        dtypes=tuple(sorted({str(p.dtype).removeprefix("torch.") for p in module.parameters()})),
        layer_counts=dict(leaves),
        stable_shapes=len(shapes) <= 1,
        num_input_shapes=len(shapes),
        regions=tuple(_region(cls, blocks, seen) for cls, blocks in repeated_blocks(module).items()),
        compiled_by_user=_is_compiled(module),
    )


def _region(class_name: str, blocks: list[tuple[str, nn.Module]], seen: Observer) -> RegionRecord:
    return RegionRecord(
        class_name=class_name,
        names=tuple(name for name, _ in blocks),
        stable_shapes=all(len(seen.input_shapes[id(block)]) <= 1 for _, block in blocks),
    )


def _is_compiled(module: nn.Module) -> bool:
    return type(module).__name__ == "OptimizedModule" or any(
        getattr(layer, "_compiled_call_impl", None) is not None for layer in module.modules()
    )


def _optimizer(name: str, optimizer: torch.optim.Optimizer, seen: Observer) -> OptimizerRecord:
    return OptimizerRecord(
        name=name,
        class_name=type(optimizer).__name__,
        num_parameters=sum(p.numel() for p in _parameters(optimizer)),
        implementation=_implementation(optimizer),
        sparse_gradients=id(optimizer) in seen.sparse,
        uses_closure=isinstance(optimizer, torch.optim.LBFGS),
    )


def _implementation(optimizer: torch.optim.Optimizer) -> str:
    group = optimizer.param_groups[0]
    if "foreach" not in group and "fused" not in group:
        return "unknown"
    if group.get("fused"):
        return "fused"
    on_cuda = any(p.is_cuda for p in group["params"])
    return "foreach" if group.get("foreach") or (group.get("foreach") is None and on_cuda) else "for-loop"


def _loader(loader: DataLoader[Any]) -> LoaderRecord:
    return LoaderRecord(
        dataset_class=type(loader.dataset).__name__,
        iterable=isinstance(loader.dataset, IterableDataset),
        batch_size=loader.batch_size,
        num_workers=loader.num_workers,
        pin_memory=loader.pin_memory,
        persistent_workers=loader.persistent_workers,
        in_memory=isinstance(loader.dataset, TensorDataset),
    )


def _parameters(optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def _shape_hook(shapes: set[Shapes]) -> Any:
    def hook(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if torch.is_grad_enabled():
            shapes.add(_shapes_of((args, kwargs)))

    return hook


def _shapes_of(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return tuple(value.shape)
    if isinstance(value, tuple | list):
        return tuple(_shapes_of(item) for item in value)
    if isinstance(value, dict):
        return tuple((key, _shapes_of(item)) for key, item in value.items())
    return None
