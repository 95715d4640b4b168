"""The parameters of a user's model, and how all workers come to the same ones."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import torch
import torch.distributed as dist


def uncompiled(model: torch.nn.Module) -> torch.nn.Module:
    """The model that torch.compile() has wrapped, or the model itself."""
    return getattr(model, "_orig_mod", model)


def is_ddp(model: torch.nn.Module) -> bool:
    """Whether it is within DDP, compiled or not."""
    return isinstance(uncompiled(model), torch.nn.parallel.DistributedDataParallel)


def inner_module(model: torch.nn.Module) -> torch.nn.Module:
    """The module that the user wrote, within what compiles it and within DDP."""
    module = uncompiled(model)
    return module.module if is_ddp(module) else module


def name_of(name: str) -> str:
    """The name of a parameter or buffer, as it was before compiling."""
    return name.replace("_orig_mod.", "")


def trained(
    module: torch.nn.Module, ignored: Collection[str] = ()
) -> list[tuple[str, torch.nn.Parameter]]:
    """The parameters that are trained, with their names as they were before compiling.
    `ignored` are left out, by the names that they have in the module."""
    return [
        (name_of(name), p)
        for name, p in module.named_parameters()
        if p.requires_grad and name not in ignored
    ]


def shapes(
    named: Sequence[tuple[str, torch.nn.Parameter]],
) -> list[tuple[str, tuple[int, ...]]]:
    """Names and dimensions, as the core takes them."""
    return [(name, tuple(p.shape)) for name, p in named]


def order_in_memory(tensor: torch.Tensor) -> str:
    """The numbers of its dimensions from the one of the largest stride to that of the smallest,
    as "0 2 3 1" of channels last. Dimensions of size 1 are left out, as where they lie means
    nothing."""
    dimensions = [d for d, size in enumerate(tensor.shape) if size > 1]
    by_stride = sorted(dimensions, key=lambda d: -tensor.stride(d))
    return " ".join(map(str, by_stride))


def untrained(module: torch.nn.Module) -> dict[str, tuple[torch.dtype, tuple[int, ...]]]:
    """Type and dimensions of frozen parameters and buffers, by what messages call them. All
    workers must have the same ones, as start_alike() broadcasts them."""
    parameters = [(name, p) for name, p in module.named_parameters() if not p.requires_grad]
    tensors = [("the frozen parameter", *named) for named in parameters]
    tensors += [("the buffer", *named) for named in module.named_buffers()]
    return {f"{kind} {name_of(name)!r}": (t.dtype, tuple(t.shape)) for kind, name, t in tensors}


# The types of gradients that are compressed.
TRAINED = (torch.float32, torch.float16, torch.bfloat16)


def check_dense(
    tensor: torch.Tensor, what: str, types: Sequence[torch.dtype] = TRAINED
) -> None:
    """Raises TypeError unless a tensor is dense and of one of the types: of others, the means
    would lose digits, imaginary parts or what is behind the point."""
    if tensor.layout != torch.strided or tensor.dtype not in types:
        kind = "dense" if tensor.layout == torch.strided else "sparse"
        names = ", ".join(str(t).removeprefix("torch.") for t in types)
        raise TypeError(f"{what} must be dense, of {names}, not {kind}, of {tensor.dtype}")


def check_parameters(named: list[tuple[str, torch.nn.Parameter]], kind: str) -> None:
    """Raises TypeError unless all are dense fp32; `kind` is the class that needs them so."""
    for name, p in named:
        if type(p.data).__name__ == "DTensor" or type(p).__name__ == "DTensor":
            raise TypeError(
                f"{name!r} is a DTensor (FSDP, tensor parallelism): {kind} "
                "needs whole parameters on each worker, as DDP has them"
            )
        if p.dtype != torch.float32 or p.layout != torch.strided:
            raise TypeError(
                f"{name!r} is {p.dtype}: keep parameters in dense torch.float32 and "
                "train under torch.autocast"
            )


def start_alike(module: torch.nn.Module, group: dist.ProcessGroup | None) -> None:
    """Collective: parameters and buffers become those of the group's worker 0."""
    source = dist.get_global_rank(group or dist.group.WORLD, 0)
    for tensor in (*module.parameters(), *module.buffers()):
        own = unexpanded(tensor.data)
        # Gloo moves as many elements as there are from the first one on, whatever the strides.
        dense = own.contiguous()
        dist.broadcast(dense, src=source, group=group)
        if dense.data_ptr() != own.data_ptr():
            own.copy_(dense)


def unexpanded(tensor: torch.Tensor) -> torch.Tensor:
    """The elements that have memory of their own, where expand() has made many of one."""
    for dimension, stride in enumerate(tensor.stride()):
        if stride == 0 and tensor.shape[dimension] > 1:
            tensor = tensor.narrow(dimension, 0, 1)
    return tensor
