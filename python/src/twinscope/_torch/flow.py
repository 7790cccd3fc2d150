"""Which recorded tensors a tensor is, or was made from, known by its storage.

Two tensors are the same record when they lie at the same place of the same storage with the same version, so a dropout that
does nothing or a container that returns its last module's output is stored once. A view of a recorded storage, or a storage
changed in place since, is another tensor made from that record; so is what functions compute between modules.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from typing import Any, Union

import torch

from .._arrays import TorchPayload
from .._writer import Hasher
from .tree import PLAIN

Place = tuple[int, torch.dtype, torch.Size, tuple[int, ...]]
Version = Union[int, str]

MOST_SOURCES = 64  # a cache of keys is made from every token before; the list says where to look, not everything

_hasher = Hasher()


class Stored:
    """What is known of one storage, for as long as it lives.

    torch keeps one Python object for each storage while anything holds it, so a weak reference to that object tells when the storage is
    gone and its address may be another's. Torch's own weak references would keep a small block alive behind each large one that
    was freed: the heap falls to pieces and the model pays for fresh memory with every tensor, three times what recording costs.
    """

    __slots__ = ("alive", "places", "sources")

    def __init__(self, alive: weakref.ref[torch.UntypedStorage]) -> None:
        self.alive = alive
        #: The records of tensors in it, by place, with the version they had.
        self.places: dict[Place, tuple[Version, int]] = {}
        #: The records that what is in it now was made from: the last of its own, or those it was computed from.
        self.sources: tuple[int, ...] = ()


class Flow:
    def __init__(self) -> None:
        self._stored: dict[int, Stored] = {}

    def look(self, tensor: torch.Tensor) -> tuple[int | None, tuple[int, ...]]:
        """The record that holds exactly this tensor's values, and the records it was made from: that one, or the one that it
        is a view of or was before it was changed, or those it was computed from."""
        stored = self._stored.get(id(_storage(tensor)))
        if stored is None:
            return None, ()
        if stored.places:
            at = stored.places.get(_place(tensor))
            if at is not None and at[0] == _version(tensor):
                return at[1], (at[1],)
        return None, stored.sources

    def same(self, tensor: torch.Tensor) -> int | None:
        """The record that holds exactly this tensor's values."""
        return self.look(tensor)[0]

    def is_new(self, tensor: torch.Tensor) -> bool:
        """Computed from records, and neither one itself nor a view of one."""
        stored = self._stored.get(id(_storage(tensor)))
        return stored is not None and not stored.places and bool(stored.sources)

    def made_from(self, tensor: torch.Tensor) -> tuple[int, ...]:
        """The record that this tensor is, is a view of, or was before it was changed; else those it was computed from."""
        stored = self._stored.get(id(_storage(tensor)))
        return () if stored is None else self._sources(stored, tensor)

    def _sources(self, stored: Stored, tensor: torch.Tensor) -> tuple[int, ...]:
        places, sources = stored.places, stored.sources
        # Where its only record is also what it was made from, that is the answer whether it changed since or not.
        if not places or (len(places) == 1 and len(sources) == 1 and next(iter(places.values()))[1] == sources[0]):
            return sources
        return self.look(tensor)[1]

    def made_from_all(self, tensors: Iterable[torch.Tensor]) -> list[int]:
        """The same of several, each record once."""
        found: dict[int, None] = {}
        for tensor in tensors:
            for record in self.made_from(tensor):
                found[record] = None
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

    def follow(self, output: torch.Tensor, args: tuple[Any, ...], kwargs: dict[str, Any] | None) -> bool:
        """`derive` for what nearly every call of a model is: torch's own tensors and numbers given, one tensor made. `False` when it is not that.

        Runs between two operations of the model, whose values have just pushed this code out of the processor's caches: it is short.
        """
        storage, known = _storage(output), self._stored
        if id(storage) in known:  # a view
            return True
        found: tuple[int, ...] = ()
        for value in (*args, *kwargs.values()) if kwargs else args:
            kind = type(value)
            if kind is torch.Tensor or kind is torch.nn.Parameter:
                stored = known.get(id(_storage(value)))
                if stored is not None:
                    sources = self._sources(stored, value)
                    found = found + tuple(record for record in sources if record not in found) if found else sources
            elif kind not in PLAIN:
                return False
        if found and storage is not None:
            self._entry(storage).sources = found[:MOST_SOURCES]
        return True

    def knows(self, tensor: torch.Tensor) -> bool:
        """Whether it lies in a storage that something is known of."""
        return id(_storage(tensor)) in self._stored

    def derive(self, output: torch.Tensor, sources: list[int], *, in_place: bool) -> None:
        """Remembers that something nobody recorded was computed from these records."""
        storage = _storage(output)
        if storage is None:
            return
        known = self._stored.get(id(storage))
        if known is not None and not in_place:  # a view
            return
        if sources and (known is None or self.same(output) is None):
            self._entry(storage).sources = tuple(sources)

    def _entry(self, storage: torch.UntypedStorage) -> Stored:
        key = id(storage)
        stored = self._stored.get(key)
        if stored is None:
            stored = self._stored[key] = Stored(weakref.ref(storage, lambda _, key=key, all=self._stored: all.pop(key, None)))  # type: ignore[misc]
        return stored


def _storage(tensor: torch.Tensor) -> torch.UntypedStorage | None:
    try:
        return tensor.untyped_storage()
    except (NotImplementedError, RuntimeError):  # sparse tensors and some subclasses: nothing to know them by
        return None


def _version(tensor: torch.Tensor) -> Version:
    # Tensors made in inference mode do not count their changes; their content tells.
    if not tensor.is_inference():
        return tensor._version
    payload = TorchPayload(tensor)
    return _hasher.of([payload.bytes()])


def _place(tensor: torch.Tensor) -> Place:
    return tensor.storage_offset(), tensor.dtype, tensor.shape, tensor.stride()  # type: ignore[return-value]
