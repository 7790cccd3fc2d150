"""Which recorded tensors a tensor is, or was made from, known by its storage.

Two tensors are the same record when they lie at the same place of the same storage with the same version, so a dropout that
does nothing or a container that returns its last module's output is stored once. A view of a recorded storage, or a storage
changed in place since, is another tensor made from that record; so is what functions compute between modules.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Union

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from .._arrays import TorchPayload
from .._writer import Hasher

Place = tuple[int, torch.dtype, torch.Size, tuple[int, ...]]
Version = Union[int, str]

MOST_SOURCES = 64  # a cache of keys is made from every token before; the list says where to look, not everything

_hasher = Hasher()


@dataclass
class Stored:
    """What is known of one storage. The weak reference keeps its address from being used again while it is a key."""

    alive: StorageWeakRef
    #: The records of tensors in it, by place, with the version they had.
    places: dict[Place, tuple[Version, int]]
    #: The records that what is in it now was made from: the last of its own, or those it was computed from.
    sources: tuple[int, ...]


class Flow:
    def __init__(self) -> None:
        self._stored: dict[int, Stored] = {}
        self._clean_at = 1024

    def same(self, tensor: torch.Tensor) -> int | None:
        """The record that holds exactly this tensor's values."""
        stored = self._find(tensor)
        if stored is None or (at := stored.places.get(_place(tensor))) is None:
            return None
        return at[1] if at[0] == _version(tensor) else None

    def is_new(self, tensor: torch.Tensor) -> bool:
        """Computed from records, and neither one itself nor a view of one."""
        stored = self._find(tensor)
        return stored is not None and not stored.places and bool(stored.sources)

    def made_from(self, tensor: torch.Tensor) -> tuple[int, ...]:
        """The record that this tensor is, is a view of, or was before it was changed; else those it was computed from."""
        stored = self._find(tensor)
        if stored is None:
            return ()
        same = self.same(tensor)
        return stored.sources if same is None else (same,)

    def made_from_all(self, tensors: Iterable[torch.Tensor]) -> list[int]:
        """The same of several, each record once."""
        found = dict.fromkeys(record for tensor in tensors for record in self.made_from(tensor))
        return list(found)[:MOST_SOURCES]

    def add(self, tensor: torch.Tensor, record: int, *, in_place: bool = False) -> None:
        """Remembers a record. An operation in place that is still under way has yet to raise the tensor's version."""
        storage = _storage(tensor)
        if storage is None:
            return
        version = _version(tensor)
        if in_place and isinstance(version, int):
            version += 1
        stored = self._entry(storage)
        stored.places[_place(tensor)] = (version, record)
        stored.sources = (record,)

    def derive(self, output: torch.Tensor, inputs: Iterable[torch.Tensor], *, in_place: bool) -> None:
        """Remembers that something nobody recorded was computed from these."""
        storage = _storage(output)
        if storage is None:
            return
        known = storage._cdata in self._stored
        if known and not in_place:  # a view
            return
        sources = self.made_from_all(inputs)
        if sources and not (known and self.same(output) is not None):
            self._entry(storage).sources = tuple(sources)

    def _entry(self, storage: torch.UntypedStorage) -> Stored:
        stored = self._stored.get(storage._cdata)
        if stored is None:
            self._clean()
            stored = self._stored[storage._cdata] = Stored(StorageWeakRef(storage), {}, ())
        return stored

    def _clean(self) -> None:
        if len(self._stored) > self._clean_at:
            self._stored = {key: stored for key, stored in self._stored.items() if not stored.alive.expired()}
            self._clean_at = 2 * len(self._stored) + 1024

    def _find(self, tensor: torch.Tensor) -> Stored | None:
        storage = _storage(tensor)
        return None if storage is None else self._stored.get(storage._cdata)


def _storage(tensor: torch.Tensor) -> torch.UntypedStorage | None:
    try:
        return tensor.untyped_storage()
    except (NotImplementedError, RuntimeError):  # sparse tensors and some subclasses: nothing to know them by
        return None


def _version(tensor: torch.Tensor) -> Version:
    # Tensors made in inference mode do not count their changes; their content tells.
    return _hasher.of([TorchPayload(tensor).bytes()]) if tensor.is_inference() else tensor._version


def _place(tensor: torch.Tensor) -> Place:
    return int(tensor.storage_offset()), tensor.dtype, tensor.shape, tensor.stride()
