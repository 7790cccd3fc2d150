"""The run format, as its reader and safetensors see it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy
import twinscope
from conftest import index, records
from twinscope import _writer


def segments(run: Path) -> list[Path]:
    return sorted(run.glob("rank-*/seg-*.safetensors"))


def test_a_closed_segment_is_a_safetensors_file(tmp_path: Path) -> None:
    with twinscope.capture(tmp_path / "run"):
        twinscope.record("odd", np.arange(3, dtype=np.uint8))
        twinscope.record("aligned", np.arange(4, dtype=np.float64))
    tensors = safetensors.numpy.load_file(segments(tmp_path / "run")[0])
    assert tensors["0:odd:tap:"].tolist() == [0, 1, 2]
    assert tensors["1:aligned:tap:"].tolist() == [0, 1, 2, 3]
    assert all(line["off"][0] % 8 == 0 for line in records(tmp_path / "run"))


def test_equal_content_is_stored_once(tmp_path: Path) -> None:
    values = np.arange(1000, dtype=np.float32)
    with twinscope.capture(tmp_path / "run"):
        twinscope.record("a", values)
        twinscope.record("b", values.copy())
    first, second = records(tmp_path / "run")
    assert second["same"] == first["i"] and "off" not in second and second["hash"] == first["hash"]
    assert twinscope.ls(tmp_path / "run", hash=True)["a"].sha256 == twinscope.ls(tmp_path / "run", hash=True)["b"].sha256


def test_a_segment_is_closed_when_it_is_full_and_another_begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_writer, "ROLL", 1000)
    with twinscope.capture(tmp_path / "run", sync=True):
        for number in range(5):
            twinscope.record(f"x{number}", np.full(100, number, np.float32))
    assert len(segments(tmp_path / "run")) == 3
    assert sum(len(safetensors.numpy.load_file(file)) for file in segments(tmp_path / "run")) == 5
    assert twinscope.ls(tmp_path / "run").names == [f"x{number}" for number in range(5)]


def test_names_that_do_not_fit_a_header_begin_another_segment(tmp_path: Path) -> None:
    names = [f"{number:04}" + "x" * 900 for number in range(400)] + ["y" * 20_000]
    with twinscope.capture(tmp_path / "run", sync=True):
        for number, name in enumerate(names):
            twinscope.record(name, np.float32(number))
    assert len(segments(tmp_path / "run")) > 1
    assert twinscope.ls(tmp_path / "run").names == names
    assert sum(len(safetensors.numpy.load_file(file)) for file in segments(tmp_path / "run")) >= 401


@pytest.mark.parametrize("dtype", ["bool", "u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8", "f2", "f4", "f8", "c8", "c16", ">f4", ">i8"])
def test_every_dtype_of_numpy_is_kept(tmp_path: Path, dtype: str) -> None:
    values = np.array([0, 1, 5], dtype)
    with twinscope.capture(tmp_path / "run"):
        twinscope.record("x", values)
    shown = twinscope.show(tmp_path / "run", "x")["values"]
    assert np.array([complex(*value) if isinstance(value, list) else value for value in shown], values.dtype.newbyteorder("=")).tolist() == values.tolist()


def test_views_are_recorded_as_what_they_show(tmp_path: Path) -> None:
    values = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    with twinscope.capture(tmp_path / "run"):
        twinscope.record("x", values.transpose(2, 0, 1)[::-1])
        twinscope.record("empty", values[:0])
        twinscope.record("scalar", np.float64(2.5))
    assert twinscope.show(tmp_path / "run", "x")["values"] == values.transpose(2, 0, 1)[::-1].tolist()
    listing = twinscope.ls(tmp_path / "run")
    assert listing["empty"].shape == [0, 3, 4] and listing["scalar"].shape == []


def test_lines_are_json_whatever_they_hold() -> None:
    line = {"k": "t", "name": 'a "b"\n\ud83d\ude00\\', "i": 1 << 70, "shape": [2, 0], "nested": {"x": (1.5, -0.0, None, True)}, "": []}
    assert json.loads(_writer.encode(line)) == json.loads(json.dumps(line))
    odd = {"nan": float("nan"), "inf": [float("inf"), float("-inf")], "path": Path("x"), 3: np.float32(1.5)}
    assert json.loads(_writer.encode(odd)) == {"nan": "NaN", "inf": ["Infinity", "-Infinity"], "path": "x", "3": "1.5"}


def test_names_that_only_look_like_text_are_recorded(tmp_path: Path) -> None:
    with twinscope.capture(tmp_path / "run"):
        twinscope.record(np.str_("x"), np.arange(3))  # a subclass of str
        with twinscope.span(np.str_("y")):
            twinscope.record("", np.arange(4), dims=np.str_("n"))
    assert twinscope.ls(tmp_path / "run").names == ["x", "y"]
    assert records(tmp_path / "run")[1]["dims"] == "n"


def test_data_begins_at_a_page_of_the_segment(tmp_path: Path) -> None:
    with twinscope.capture(tmp_path / "run"):
        twinscope.record("x", np.arange(3))
    data = segments(tmp_path / "run")[0].read_bytes()
    assert (8 + int.from_bytes(data[:8], "little")) % 4096 == 0


def test_a_run_that_came_to_its_end_says_so(tmp_path: Path) -> None:
    with twinscope.capture(tmp_path / "run"):
        twinscope.record("x", 1.5)
    assert index(tmp_path / "run")[-1] == {"k": "end", "n": 1, "bytes": 8, "dropped": 0}


def test_without_xxhash_the_hash_says_what_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    with twinscope.capture(tmp_path / "fast", sync=True):
        twinscope.record("x", 1.5)
    monkeypatch.setitem(sys.modules, "xxhash", None)
    with twinscope.capture(tmp_path / "plain", sync=True):
        twinscope.record("x", 1.5)
    assert records(tmp_path / "fast")[0]["hash"].startswith("xxh3:")
    kind, digits = records(tmp_path / "plain")[0]["hash"].split(":")
    assert kind == "sha256" and len(digits) == 32
