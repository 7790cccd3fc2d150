"""The dataclasses have the fields that the program writes, which `_schema.py` lists."""

from __future__ import annotations

import dataclasses
import typing

import pytest
from twinscope import _report, _schema

DOCUMENTS = {
    _report.Report: ["Report"],
    _report.Pair: ["Pair"],
    _report.Totals: ["Totals"],
    _report.SideTotals: ["SideTotals"],
    _report.Cause: ["Cause"],
    _report.Layout: ["Layout"],
    _report.Leftover: ["Leftover"],
    _report.FirstDivergence: ["FirstDivergence"],
    # One class for reports and listings.
    _report.Skipped: ["Skipped", "SkippedRow"],
    _report.Finding: ["Finding", "FindingRow"],
    _report.Listing: ["Listing", "StatsListing"],
    _report.TensorInfo: ["TensorRow"],
    _report.TensorStats: ["StatsRow"],
    _report.Value: ["ValueRow"],
}


@pytest.mark.parametrize("kind", DOCUMENTS, ids=lambda kind: kind.__name__)
def test_a_class_has_the_fields_of_its_document(kind: type) -> None:
    written = {name for document in DOCUMENTS[kind] for name in _schema.FIELDS[document]}
    # `json` is the document itself.
    assert {field.name for field in dataclasses.fields(kind)} - {"json"} == written  # type: ignore[arg-type]


def test_a_report_says_what_it_was_computed_in() -> None:
    document = {
        "reference": "a", "candidate": "b", "verdict": "agree", "partial": False, "first_divergence": None, "divergences": [], "layer_offset": 0,
        "computed_in": [None, "bf16"], "pairs": [], "only_reference": [], "only_candidate": [], "skipped": [], "findings": [],
    }  # fmt: skip
    assert _report.read(_report.Report, document).computed_in == [None, "bf16"]
    del document["computed_in"]
    assert _report.read(_report.Report, document).computed_in == [None, None], "version 0.1.0 before it was recorded"


def test_the_kinds_of_causes_are_those_of_the_program() -> None:
    kinds = typing.get_args(_schema.CauseKind)
    assert {"permuted", "missing_term", "unknown"} <= set(kinds) and len(set(kinds)) == len(kinds)
    assert typing.get_args(typing.get_type_hints(_report.Cause)["kind"]) == (_schema.CauseKind, str)


@pytest.mark.parametrize("kind", [*typing.get_args(_schema.CauseKind), "a_kind_of_a_newer_version"])
def test_a_cause_of_any_kind_can_be_read(kind: str) -> None:
    cause = _report.read(_report.Cause, {"kind": kind, "explained": 0.5, "text": "a sentence", "details": None})
    assert cause == _report.Cause(kind=kind, explained=0.5, text="a sentence")
