"""The documents of `twinscope --json` as Python objects, field by field as `docs/contract.md` names them.

Numbers that are undefined are `None`; NaN and infinities are floats. What a newer program says beyond these fields is in `json`.
Field names and words come from the program's own types: `_schema.py` is generated, and a test compares these classes with it.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from dataclasses import dataclass, field
from typing import Any, Iterator, TypeVar, Union

from . import _html
from ._schema import CauseKind, Origin, Overall, Verdict

T = TypeVar("T")
Number = Union[float, int, None]
Names = Union[str, list[str]]


@dataclass(frozen=True)
class SideTotals:
    """One side of a pair, over its finite values."""

    mean: Number = None
    std: Number = None
    min: Number = None
    max: Number = None
    nan: int = 0
    inf: int = 0
    zero: int = 0
    norm: Number = None


@dataclass(frozen=True)
class Totals:
    """Numbers measured over a pair, no opinion."""

    count: int
    compared: int
    differing: int
    max_abs: Number
    mean_abs: Number
    max_rel: Number
    mean_rel: Number
    mse: Number
    rel_l2: Number
    cosine: Number
    max_ulp: Number
    argmax: list[int] | None
    worst: list[Number] | None
    reference: SideTotals
    candidate: SideTotals
    top: list[dict[str, Any]] = field(default_factory=list)
    magnitudes: list[list[int]] = field(default_factory=list)
    ulps: list[list[int]] = field(default_factory=list)
    beyond: int | None = None
    worst_exact: list[str] | None = None


@dataclass(frozen=True)
class Cause:
    """Why a pair differs: a kind of `docs/causes.md`, how much of the difference it explains, a sentence, and what was fitted."""

    # Any string: a report of a newer program may have kinds that this package does not know.
    kind: Union[CauseKind, str]
    explained: Number
    text: str
    details: dict[str, Any] | None = None


@dataclass(frozen=True)
class Layout:
    """The steps that make the candidate's shape comparable."""

    text: str
    steps: list[Any]
    by: str


@dataclass(frozen=True)
class Pair:
    """Two tensors judged to be the same one."""

    name: str
    reference: Names
    candidate: Names
    order: int
    rule: str
    score: Number
    layout: Layout | None
    shape: list[int] | None
    dtypes: list[str]
    verdict: Verdict
    agrees_at: str | None
    origin: Origin | None
    totals: Totals | None
    causes: list[Cause]
    reason: str | None = None


@dataclass(frozen=True)
class Leftover:
    """A tensor without its partner, and the nearest one there is."""

    name: str
    suggestion: str | None = None
    score: Number = None


@dataclass(frozen=True)
class Skipped:
    """What could not be read, and why."""

    name: str
    reason: str
    side: str | None = None


@dataclass(frozen=True)
class Finding:
    """Something odd or unsafe in a file."""

    kind: str
    text: str
    side: str | None = None


@dataclass(frozen=True)
class FirstDivergence:
    pair: int
    name: str


@dataclass(frozen=True, repr=False)
class Report:
    """The whole comparison. In a notebook it shows itself; `print` gives the short form."""

    reference: str
    candidate: str
    verdict: Overall
    partial: bool
    first_divergence: FirstDivergence | None
    divergences: list[int]
    layer_offset: int
    pairs: list[Pair]
    only_reference: list[Leftover]
    only_candidate: list[Leftover]
    skipped: list[Skipped]
    findings: list[Finding]
    schema: int = 1
    left_out: list[Skipped] = field(default_factory=list)
    # Of each side, the coarser dtype that all of it was computed in, where it is recorded in a wider one.
    computed_in: list[str | None] = field(default_factory=lambda: [None, None])
    json: dict[str, Any] = field(default_factory=dict, compare=False)

    @property
    def agree(self) -> bool:
        """Every pair is identical, rounding or harmless, and no tensor is left without its partner."""
        return self.verdict == "agree" and not self.partial and not self.only_reference and not self.only_candidate

    @property
    def first(self) -> Pair | None:
        """The pair where they part ways."""
        return None if self.first_divergence is None else self.pairs[self.first_divergence.pair]

    def __getitem__(self, name: str) -> Pair:
        """The pair of this name."""
        for pair in self.pairs:
            if pair.name == name:
                return pair
        raise KeyError(name)

    def __iter__(self) -> Iterator[Pair]:
        return iter(self.pairs)

    def __len__(self) -> int:
        return len(self.pairs)

    def __repr__(self) -> str:
        return "\n".join(_html.sentences(self))

    def _repr_html_(self) -> str:
        return _html.report(self)


@dataclass(frozen=True)
class TensorInfo:
    name: str
    dtype: str
    shape: list[int]
    bytes: int | None
    order: int
    sha256: str | None = None
    meta: dict[str, Any] | None = None


@dataclass(frozen=True)
class Value:
    """A Python value that a file holds beside its tensors."""

    name: str
    type: str
    value: Any = None


@dataclass(frozen=True)
class TensorStats:
    """One tensor measured, over its finite values."""

    name: str
    dtype: str
    shape: list[int]
    order: int
    count: int
    finite: int
    mean: Number
    std: Number
    min: Number
    max: Number
    nan: int
    inf: int
    zero: int
    norm: Number
    pos_inf: int = 0
    neg_inf: int = 0
    sum: Number = None
    max_abs: Number = None
    # "overflowed" or "underflowed" when the squares left the range of a double and were measured scaled.
    squares: str | None = None


Entry = TypeVar("Entry", TensorInfo, TensorStats)


@dataclass(frozen=True, repr=False)
class Listing(typing.Generic[Entry]):
    """What a source holds, in execution order: of `ls` with `TensorInfo`, of `stats` with `TensorStats`."""

    source: str
    format: str
    tensors: list[Entry]
    values: list[Value] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    meta: dict[str, Any] | None = None

    def __getitem__(self, name: str) -> Entry:
        for tensor in self.tensors:
            if tensor.name == name:
                return tensor
        raise KeyError(name)

    def __iter__(self) -> Iterator[Entry]:
        return iter(self.tensors)

    def __len__(self) -> int:
        return len(self.tensors)

    @property
    def names(self) -> list[str]:
        return [tensor.name for tensor in self.tensors]

    def __repr__(self) -> str:
        return "\n".join(_html.listing_lines(self))

    def _repr_html_(self) -> str:
        return _html.listing(self)


def read(kind: type[T], value: Any) -> T:
    """A document as an object of this class."""
    return typing.cast(T, _read(kind, value))


def _read(kind: Any, value: Any) -> Any:
    """A JSON value as what the annotation says. Fields that are not known here are left to newer versions."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (Union, types.UnionType):
        return None if value is None else _read(_fitting(arguments, value), value)
    if origin is list and isinstance(value, list):
        return [_read(arguments[0], item) for item in value]
    target = origin if dataclasses.is_dataclass(origin) else kind
    if dataclasses.is_dataclass(target) and isinstance(value, dict):
        return _object(typing.cast(type, target), value, arguments)
    if value in ("NaN", "Infinity", "-Infinity") and kind is float:
        return float(value)
    return value


def _fitting(kinds: tuple[Any, ...], value: Any) -> Any:
    """The member of a union that a value is of; the first that is not None otherwise."""
    kinds = tuple(kind for kind in kinds if kind is not type(None))
    if float in kinds and value in ("NaN", "Infinity", "-Infinity"):
        return float
    if isinstance(value, list):
        return next((kind for kind in kinds if typing.get_origin(kind) is list), kinds[0])
    return kinds[0] if len(kinds) == 1 else type(value)


def _object(kind: type, value: dict[str, Any], arguments: tuple[Any, ...]) -> Any:
    hints = _hints(kind)
    given = {}
    for known in dataclasses.fields(kind):
        if known.name in value:
            hint = hints[known.name]
            if arguments and typing.get_args(hint) and isinstance(typing.get_args(hint)[0], TypeVar):
                hint = list[arguments[0]]  # type: ignore[valid-type]
            given[known.name] = _read(hint, value[known.name])
    if kind is Report:
        given["json"] = value
    return kind(**given)


_known_hints: dict[type, dict[str, Any]] = {}


def _hints(kind: type) -> dict[str, Any]:
    if kind not in _known_hints:
        _known_hints[kind] = typing.get_type_hints(kind)
    return _known_hints[kind]
