"""`diff`, `ls`, `stats`, `show`, `serve` as functions, and what they return."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import twinscope
from conftest import REPOSITORY
from twinscope import _report

FAULTS = REPOSITORY / "testdata" / "faults"


@pytest.fixture(scope="module")
def diverged() -> twinscope.Report:
    return twinscope.diff(FAULTS / "reference.pth", FAULTS / "rope_theta.over_bf16.pth")


def test_a_divergence_is_an_answer_not_an_error(diverged: twinscope.Report) -> None:
    assert diverged.verdict == "diverged" and not diverged.agree
    assert diverged.first is not None and diverged.first.name == "1_query_final"
    assert diverged.first.origin == "own" and diverged.first.order == diverged.divergences[0]
    assert isinstance(diverged.first.totals, twinscope.Totals) and isinstance(diverged.first.totals.reference, twinscope.SideTotals)
    assert diverged["1_query_final"] is diverged.first
    assert len(diverged) == len(list(diverged)) == len(diverged.pairs)


def test_a_report_reads_well(diverged: twinscope.Report) -> None:
    text = repr(diverged)
    assert text.startswith("diverged at 1_query_final (pair ") and "reference.pth" in text


def test_dicts_of_arrays_are_sources() -> None:
    reference = {"a": np.arange(4.0), "nested": {"b": np.ones(3, np.float32)}, "n": 3, "text": "left out"}
    report = twinscope.diff(reference, {**reference, "a": np.arange(4.0) + 1})
    assert [pair.name for pair in report.pairs] == ["a", "nested.b", "n"]
    assert report.first is not None and report.first.name == "a"
    assert report.first.totals is not None and report.first.totals.max_abs == 1
    assert (report.reference, report.candidate) == ("dict of 4", "dict of 4")
    assert twinscope.diff(reference, reference).agree


def test_nan_and_infinity_come_through_and_undefined_is_none() -> None:
    report = twinscope.diff({"x": np.array([1.0, 2.0])}, {"x": np.array([np.nan, np.inf])})
    totals = report.pairs[0].totals
    assert totals is not None and totals.compared == 0 and totals.max_abs is None
    assert totals.worst is not None and totals.worst[0] == 1.0 and isinstance(totals.worst[1], float) and math.isnan(totals.worst[1])


def test_settings_are_the_flags_of_the_command() -> None:
    reference, candidate = {"a": np.ones(3), "b": np.ones(3)}, {"a": np.ones(3) * 1.1, "c": np.ones(3)}
    report = twinscope.diff(reference, candidate, rtol=0.2, allow_missing=True, map={"b": "c"}, match="manual,exact")
    assert report.agree and {pair.rule for pair in report} == {"manual", "exact"}
    assert report["a"].totals is not None and report["a"].totals.beyond == 0
    only = twinscope.diff(reference, candidate, only=["a"])
    assert [pair.name for pair in only] == ["a"] and only.left_out
    with pytest.raises(twinscope.Error, match="--no-such-flag"):
        twinscope.diff(reference, candidate, no_such_flag=1)


def test_what_is_left_over_is_no_agreement() -> None:
    report = twinscope.diff({"a": np.ones(3), "b": np.arange(5)}, {"a": np.ones(3)})
    assert report.verdict == "agree" and not report.agree
    assert [left.name for left in report.only_reference] == ["b"]
    assert "only in the reference: b" in repr(report)


def test_an_error_says_what_and_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(twinscope.Error, match="missing.pt"):
        twinscope.ls(tmp_path / "missing.pt")
    with pytest.raises(TypeError, match="not a int"):
        twinscope.ls(3)  # type: ignore[arg-type]


def test_listings_and_statistics_are_objects() -> None:
    listing = twinscope.ls(FAULTS / "reference.pth", hash=True)
    assert listing.tensors[0].name == "input_ids" and listing.tensors[0].sha256
    measured = twinscope.stats({"x": np.array([1.0, np.nan, 3.0]), "empty": np.zeros(0)})
    assert (measured["x"].mean, measured["x"].nan, measured["x"].count) == (2.0, 1, 3)
    assert measured["empty"].mean is None
    assert twinscope.show({"x": np.arange(6).reshape(2, 3)}, "x[1, 1:]")["values"] == [4, 5]


def test_the_notebook_shows_a_report_without_trusting_its_names() -> None:
    evil = "<script>alert(1)</script>\" onload='x'"
    html = twinscope.diff({evil: np.ones(3), "x": np.ones(2)}, {evil: np.zeros(3), "x": np.ones(2)})._repr_html_()
    assert "<script" not in html and "&lt;script&gt;" in html
    assert "http" not in html.replace("http://www.w3.org/2000/svg", "")
    assert "diverged" in html
    listing = twinscope.ls({evil: 1})._repr_html_()
    assert "<script" not in listing


def test_the_notebook_shows_the_rows_around_the_divergence_of_a_long_report(diverged: twinscope.Report) -> None:
    html = diverged._repr_html_()
    assert "1_query_final" in html and "<svg" in html and "polyline" in html
    pairs = diverged.pairs * 20
    long = _report.read(_report.Report, {**diverged.json, "pairs": [pair for pair in diverged.json["pairs"]] * 20})
    assert len(long) == len(pairs)
    assert long._repr_html_().count("<tr") == 201 and "more pairs in" in long._repr_html_()


def test_fields_of_a_newer_program_are_kept_in_json(diverged: twinscope.Report) -> None:
    newer = {**diverged.json, "from_the_future": 1}
    report = _report.read(_report.Report, newer)
    assert report == diverged and report.json["from_the_future"] == 1


def test_the_program_is_found_where_the_wheel_puts_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = twinscope.binary()
    monkeypatch.setenv("TWINSCOPE_BINARY", str(tmp_path / "nowhere"))
    with pytest.raises(twinscope.Error, match="no file"):
        twinscope.binary()
    monkeypatch.delenv("TWINSCOPE_BINARY")
    monkeypatch.setattr("sysconfig.get_path", lambda *_: str(tmp_path))
    monkeypatch.setattr("sys.executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    with pytest.raises(twinscope.Error, match="TWINSCOPE_BINARY"):
        twinscope.binary()
    (tmp_path / "twinscope").symlink_to(program)
    assert twinscope.binary() == tmp_path / "twinscope"


def test_the_module_is_the_command() -> None:
    done = subprocess.run([sys.executable, "-m", "twinscope", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("twinscope ")


def test_serve_returns_when_the_page_is_there_and_stops_when_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "twinscope"
    program.write_text('#!/bin/sh\necho "$@" > "$0.args"\necho http://127.0.0.1:5005/\necho noise >&2\nexec sleep 60\n')
    program.chmod(0o755)
    monkeypatch.setenv("TWINSCOPE_BINARY", str(program))
    with twinscope.serve(tmp_path, {"x": 1}, open=False) as server:
        assert server.url == "http://127.0.0.1:5005/" and server.running
        words = (tmp_path / "twinscope.args").read_text().split()
        assert words[:2] == ["serve", str(tmp_path)] and words[3:] == ["--port=0", "--no-open"]
        assert os.path.isdir(words[2]), "a dict is a run while the server needs it"
    assert not server.running and not os.path.exists(words[2])


def test_serve_that_cannot_start_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "twinscope"
    program.write_text("#!/bin/sh\necho 'twinscope: the port is taken' >&2\nexit 2\n")
    program.chmod(0o755)
    monkeypatch.setenv("TWINSCOPE_BINARY", str(program))
    with pytest.raises(twinscope.Error, match="the port is taken"):
        twinscope.serve()
