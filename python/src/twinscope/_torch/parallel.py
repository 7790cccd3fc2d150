"""Tensors that are split over processes: what torch's DTensor says, and what the classes of Megatron, vLLM and SGLang mean."""

from __future__ import annotations

import sys
from typing import Any

import torch

# What these layers give when they do not put their result together again: the last dimension split, or a sum's part.
COLUMNS = {"ColumnParallelLinear", "MergedColumnParallelLinear", "QKVParallelLinear", "TEColumnParallelLinear", "TELayerNormColumnParallelLinear"}
ROWS = {"RowParallelLinear", "TERowParallelLinear"}


def _dtensor(value: Any) -> bool:
    if type(value) is torch.Tensor:
        return False
    module = sys.modules.get("torch.distributed.tensor")
    return module is not None and isinstance(value, module.DTensor)


def local(value: torch.Tensor) -> torch.Tensor:
    """This rank's part."""
    return value.to_local() if _dtensor(value) else value  # type: ignore[attr-defined]


def mesh(value: torch.Tensor) -> tuple[dict[str, int], dict[str, int]] | None:
    """Where this rank is in the tensor's mesh, and how large that is, by the names of its dimensions."""
    if not _dtensor(value):
        return None
    device_mesh: Any = value.device_mesh  # type: ignore[attr-defined]
    names = device_mesh.mesh_dim_names
    coordinate = device_mesh.get_coordinate()
    if names is None or coordinate is None:
        return None
    return dict(zip(names, coordinate)), dict(zip(names, device_mesh.shape))


def facts(value: torch.Tensor, module: torch.nn.Module | None, role: str) -> dict[str, Any]:
    """`placements`, `global_shape` and `dims` of a tensor, where somebody knows them."""
    if _dtensor(value):
        placements: Any = value.placements  # type: ignore[attr-defined]
        known: dict[str, Any] = {"placements": [str(placement) for placement in placements], "global_shape": list(value.shape)}
        return known | _dims_of_placements(value, placements)
    if module is not None and role == "out" and value.dim():
        axis = _split_output(module)
        if axis is not None:
            return {"dims": _dims(value.dim(), {value.dim() - 1: [axis]})}
    return {}


def _split_output(module: torch.nn.Module) -> str | None:
    name = type(module).__name__
    if getattr(module, "tp_size", 2) == 1:
        return None
    if name in COLUMNS and not getattr(module, "gather_output", False):
        return "tp"
    if name in ROWS and not getattr(module, "reduce_results", True):
        return "tp:partial"
    return None


AXES = {"tp", "cp", "ep", "sp", "dp", "etp", "edp", "pp"}


def _dims_of_placements(value: torch.Tensor, placements: Any) -> dict[str, str]:
    names = value.device_mesh.mesh_dim_names or ()  # type: ignore[attr-defined]
    if not value.dim() or not names or not set(names) <= AXES:
        return {}
    split: dict[int, list[str]] = {}
    replicated = []
    for axis, placement in zip(names, placements):
        if placement.is_shard():
            split.setdefault(placement.dim % value.dim(), []).append(axis)
        elif placement.is_partial():
            split.setdefault(value.dim() - 1, []).append(f"{axis}:partial")
        else:
            replicated.append(f"{axis}:replicated")
    return {"dims": _dims(value.dim(), split) + (f" # {' '.join(replicated)}" if replicated else "")}


def _dims(rank: int, split: dict[int, list[str]]) -> str:
    """SGLang's grammar: `d0 d1 d2[tp]`."""
    return " ".join(f"d{at}[{','.join(split[at])}]" if at in split else f"d{at}" for at in range(rank))
