"""The tensors inside what modules take and give: tuples, dicts, dataclasses, Hugging Face's ModelOutput."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

import torch

DEEPEST = 16


def tensors(value: Any, path: str = "", depth: int = 0) -> Iterator[tuple[str, torch.Tensor]]:
    """Each tensor with its place: `0`, `attentions.5`, `last_hidden_state`; empty when the value is the tensor."""
    if isinstance(value, torch.Tensor):
        yield path, value
    elif depth < DEEPEST:
        for key, item in _items(value):
            yield from tensors(item, f"{path}.{key}" if path else str(key), depth + 1)


def _items(value: Any) -> Iterator[tuple[Any, Any]]:
    if isinstance(value, Mapping):
        return iter(value.items())
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return iter(zip(value._fields, value))
    if isinstance(value, (list, tuple)):
        return iter(enumerate(value))
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return ((field.name, getattr(value, field.name, None)) for field in dataclasses.fields(value))
    return iter(())
