"""The tensors inside what modules take and give: tuples, dicts, dataclasses, Hugging Face's ModelOutput."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch

DEEPEST = 16


def tensors(value: Any, path: str = "") -> list[tuple[str, torch.Tensor]]:
    """Each tensor with its place: `0`, `attentions.5`, `last_hidden_state`; empty when the value is the tensor."""
    if type(value) is torch.Tensor:
        return [(path, value)]
    found: list[tuple[str, torch.Tensor]] = []
    _collect(value, path, 0, found)
    return found


def flat(values: Iterable[Any]) -> list[torch.Tensor]:
    """The tensors alone: asked for the arguments of every function of a model."""
    found: list[torch.Tensor] = []
    for value in values:
        if isinstance(value, torch.Tensor):
            found.append(value)
        elif type(value) not in PLAIN:
            found.extend(tensor for _, tensor in tensors(value))
    return found


def _collect(value: Any, path: str, depth: int, found: list[tuple[str, torch.Tensor]]) -> None:
    # Called for every argument of every function of a model: what is no container is told by its type.
    if isinstance(value, torch.Tensor):
        found.append((path, value))
    elif type(value) not in PLAIN and depth < DEEPEST:
        for key, item in _items(value):
            if type(item) not in PLAIN:
                _collect(item, f"{path}.{key}" if path else str(key), depth + 1, found)


PLAIN = {type(None), bool, int, float, complex, str, bytes, torch.dtype, torch.device, torch.Size, slice, type(...)}


def _items(value: Any) -> Iterator[tuple[Any, Any]]:
    if type(value) is tuple or type(value) is list:
        return iter(enumerate(value))
    if isinstance(value, Mapping):
        return iter(value.items())
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return iter(zip(value._fields, value))
    if isinstance(value, (list, tuple)):
        return iter(enumerate(value))
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return ((field.name, getattr(value, field.name, None)) for field in dataclasses.fields(value))
    return iter(())
