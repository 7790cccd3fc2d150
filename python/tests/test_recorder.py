"""What is recorded, what is not, and what happens when something goes wrong. Without torch."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import twinscope
from conftest import index, records

Start = Callable[..., "subprocess.Popen[str]"]


def test_record_is_nothing_unless_a_capture_is_active(tmp_path: Path) -> None:
    assert twinscope.record("x", 3) == 3
    twinscope.step()
    assert list(tmp_path.iterdir()) == []


def test_numbers_and_arrays_are_recorded_in_order(tmp_path: Path) -> None:
    with twinscope.capture(tmp_path / "run"):
        twinscope.record("loss", 0.5)
        twinscope.record("tokens", 7)
        twinscope.record("done", True)
        twinscope.record("x", np.ones((2, 3), np.float16))
    listing = twinscope.ls(tmp_path / "run")
    assert [(tensor.name, tensor.dtype, tensor.shape) for tensor in listing] == [
        ("loss", "f64", []), ("tokens", "i64", []), ("done", "bool", []), ("x", "f16", [2, 3]),
    ]  # fmt: skip
    assert listing.meta is not None and listing.meta["producer"].startswith("twinscope-python")


def test_the_same_name_again_is_another_call_and_a_step_counts_anew(tmp_path: Path) -> None:
    with twinscope.capture(tmp_path / "run"):
        for number in range(2):
            twinscope.record("x", number)
        twinscope.step()
        twinscope.record("x", 2)
    assert twinscope.ls(tmp_path / "run").names == ["x", "x@1", "step-1/x"]


def test_names_are_below_the_spans_they_are_recorded_in(tmp_path: Path) -> None:
    with twinscope.capture(tmp_path / "run"):
        for number in range(2):
            with twinscope.span(f"layer.{number}"), twinscope.span("attn"):
                twinscope.record("q", number)
                twinscope.record("", 0.5, role="attn")
        twinscope.record("loss", 1)
    assert twinscope.ls(tmp_path / "run").names == ["layer.0.attn.q", "layer.0.attn.attn", "layer.1.attn.q", "layer.1.attn.attn", "loss"]
    spans = [line for line in index(tmp_path / "run") if line["k"] == "x"]
    assert [line["name"] for line in spans] == ["layer.0.attn", "layer.0", "layer.1.attn", "layer.1"]
    assert spans[1]["dur"] >= spans[0]["dur"] > 0


def test_only_the_steps_that_were_asked_for_are_recorded(tmp_path: Path) -> None:
    with twinscope.capture(tmp_path / "run", steps=range(1, 3)):
        for number in range(5):
            twinscope.record("x", number)
            twinscope.step()
    assert twinscope.ls(tmp_path / "run").names == ["step-1/x", "step-2/x"]
    with pytest.raises(TypeError, match=re.escape("range(3) is the first 3")):
        twinscope.capture(tmp_path / "other", steps=3)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("filters", "kept"),
    [
        ({"include": "layer.*"}, ["layer.0.q", "layer.1.q"]),
        ({"include": ["*.q", "head"], "exclude": "layer.1.*"}, ["layer.0.q", "head"]),
        ({"include": re.compile(r"\d")}, ["layer.0.q", "layer.1.q"]),
        ({"exclude": lambda name: name == "head"}, ["layer.0.q", "layer.1.q"]),
    ],
)
def test_names_are_chosen_by_globs_expressions_and_functions(tmp_path: Path, filters: dict[str, object], kept: list[str]) -> None:
    with twinscope.capture(tmp_path / "run", **filters):  # type: ignore[arg-type]
        for name in ("layer.0.q", "layer.1.q", "head"):
            twinscope.record(name, 1)
    assert [line["name"] for line in records(tmp_path / "run")] == kept


def test_a_value_that_has_no_bytes_is_said_not_dropped(tmp_path: Path) -> None:
    with twinscope.capture(tmp_path / "run"):
        twinscope.record("words", np.array(["a", "b"]))
        twinscope.record("huge", 1 << 80)
        twinscope.record("fine", 1)
    listing = twinscope.ls(tmp_path / "run")
    assert listing.names == ["fine"]
    assert {skipped.name for skipped in listing.skipped} == {"words", "huge"}
    assert "more than 64 bits" in [skipped.reason for skipped in listing.skipped if skipped.name == "huge"][0]


def test_statistics_alone_count_nan_and_keep_undefined_undefined(tmp_path: Path) -> None:
    with twinscope.capture(tmp_path / "run", stats_only=["big.*"]):
        twinscope.record("big.x", np.array([1, np.nan, 3, np.inf], np.float32))
        twinscope.record("big.nothing", np.array([np.nan]))
        twinscope.record("small", np.zeros(2))
    big, nothing, small = records(tmp_path / "run")
    assert "off" not in big and "off" in small
    assert (big["stats"]["count"], big["stats"]["nan"], big["stats"]["inf"], big["stats"]["mean"]) == (4, 1, 1, 2.0)
    assert nothing["stats"]["mean"] is None and nothing["stats"]["nan"] == 1


def test_a_run_is_never_written_over_unasked(tmp_path: Path) -> None:
    def write(value: int, **settings: bool) -> None:
        with twinscope.capture(tmp_path / "run", **settings):  # type: ignore[arg-type]
            twinscope.record("x", value)

    write(1)
    with pytest.raises(FileExistsError, match="overwrite=True"):
        write(2)
    assert twinscope.show(tmp_path / "run", "x")["values"] == 1
    (tmp_path / "run" / "rank-00000" / "notes.txt").write_text("mine")
    write(3, overwrite=True)
    assert twinscope.show(tmp_path / "run", "x")["values"] == 3
    assert (tmp_path / "run" / "rank-00000" / "notes.txt").exists()


def test_a_run_can_be_read_while_it_is_recorded(tmp_path: Path) -> None:
    with twinscope.capture(tmp_path / "run") as run:
        twinscope.record("x", np.arange(5))
        assert twinscope.ls(run).names == ["x"]
        twinscope.record("y", np.arange(5))
        assert twinscope.ls(run).names == ["x", "y"]


def test_a_tensor_larger_than_the_buffer_is_recorded(tmp_path: Path) -> None:
    small, large = np.arange(10), np.arange(1 << 20, dtype=np.float64)
    with twinscope.capture(tmp_path / "run", buffer=1 << 20):
        for number in range(4):
            twinscope.record("small", small + number)
            twinscope.record("large", large + number)
    shown = [twinscope.show(tmp_path / "run", name + "[-1]")["values"] for name in ("large", "large@3", "small@3")]
    assert shown == [large[-1], large[-1] + 3, small[-1] + 3]


def test_many_small_tensors_go_round_the_ring(tmp_path: Path) -> None:
    with twinscope.capture(tmp_path / "run", buffer=1 << 20):
        for number in range(600):
            twinscope.record(f"x{number}", np.full(1000 + 7 * number, number, np.float32))
    for tensor in twinscope.stats(tmp_path / "run"):
        number = int(tensor.name[1:])
        assert (tensor.min, tensor.max, tensor.count) == (number, number, 1000 + 7 * number)


def test_without_a_process_of_its_own_a_thread_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.executable", "")
    with twinscope.capture(tmp_path / "run", buffer=1 << 20) as run:
        for number in range(50):
            twinscope.record("x", np.full(20_000 * (1 + number % 3), number, np.float64))
        assert len(twinscope.ls(run)) == 50
    assert index(tmp_path / "run")[-1]["n"] == 50
    assert twinscope.show(tmp_path / "run", "x@49[7]")["values"] == 49


def test_kill_9_loses_nothing_that_was_recorded(tmp_path: Path, script: Start) -> None:
    process = script("""
        import os, signal, sys, numpy, twinscope
        with twinscope.capture("run"):
            for number in range(40):
                twinscope.record(f"x{number}", numpy.full(100_000, number, numpy.float32))
                if number == 24:
                    os.kill(os.getpid(), signal.SIGKILL)
    """)
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    # The writer outlives the model's process by what it still has to write.
    deadline = time.monotonic() + 60
    while (count := len(records(tmp_path / "run"))) < 25 and time.monotonic() < deadline:
        time.sleep(0.01)
    stats = twinscope.stats(tmp_path / "run")
    assert count == 25 and not stats.skipped
    assert [(tensor.min, tensor.max) for tensor in stats] == [(number, number) for number in range(25)]
    assert index(tmp_path / "run")[-1]["k"] != "end"


def test_kill_9_of_the_writer_too_leaves_a_readable_run(tmp_path: Path, script: Start) -> None:
    process = script("""
        import sys, numpy, twinscope
        with twinscope.capture("run") as run:
            for number in range(10_000):
                twinscope.record(f"x{number}", numpy.full(50_000, number, numpy.float32))
                if number == 20:
                    run.flush()
                    print(run._channel._link._process.pid, flush=True)
    """)
    assert process.stdout is not None
    writer = int(process.stdout.readline())
    os.kill(process.pid, signal.SIGKILL)
    os.kill(writer, signal.SIGKILL)
    process.communicate()
    stats = twinscope.stats(tmp_path / "run")
    assert len(stats) > 20 and not stats.skipped
    assert all(tensor.min == tensor.max == int(tensor.name[1:]) for tensor in stats)


@pytest.mark.parametrize("how", ["raise SystemExit(3)", "raise ValueError", "sys.exit(0)"])
def test_a_program_that_ends_inside_a_capture_closes_it(tmp_path: Path, script: Start, how: str) -> None:
    process = script(f"""
        import sys, twinscope
        run = twinscope.capture("run").__enter__()
        twinscope.record("x", 1)
        {how}
    """)
    process.communicate()
    assert index(tmp_path / "run")[-1]["k"] == "end"


FULL = """
    import resource, signal, warnings, numpy, twinscope
    warnings.simplefilter("always")
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))  # as a full disk: writing more fails
    with twinscope.capture("run", on_full={on_full!r}, sync={sync}):
        for number in range(40):
            twinscope.record(f"x{{number}}", numpy.full(10_000, number, numpy.float32))
    print("the model ran on")
"""


@pytest.mark.parametrize("sync", [True, False])
def test_a_full_disk_does_not_stop_the_model(tmp_path: Path, script: Start, sync: bool) -> None:
    out, err = script(FULL.format(on_full="continue", sync=sync)).communicate()
    assert "the model ran on" in out
    assert err.count("RuntimeWarning") == 1 and "cannot write to" in err and "run/rank-00000" in err
    stats = twinscope.stats(tmp_path / "run")
    assert 10 < len(stats) < 30
    assert all(tensor.min == tensor.max == int(tensor.name[1:]) for tensor in stats)
    # What is missing is named, with the reason, and counted.
    assert len(stats) + len(stats.skipped) == 40
    end = index(tmp_path / "run")[-1]
    assert end["dropped"] == len(stats.skipped) and "cannot write to" in end["err"]


@pytest.mark.parametrize("sync", [True, False])
def test_a_full_disk_stops_the_model_when_asked_to(tmp_path: Path, script: Start, sync: bool) -> None:
    process = script(FULL.format(on_full="stop", sync=sync))
    out, err = process.communicate()
    assert process.returncode == 1 and "the model ran on" not in out
    assert "CaptureError: cannot write to" in err and "on_full='continue'" in err
    assert len(twinscope.ls(tmp_path / "run")) > 10


def test_a_folder_that_cannot_be_written_is_said_at_once(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="file"):
        twinscope.capture(tmp_path / "file" / "run")


def test_four_processes_are_four_ranks_of_one_source(tmp_path: Path, script: Start) -> None:
    program = """
        import os, numpy, twinscope
        with twinscope.capture("run"):
            shard = numpy.arange(32, dtype=numpy.float32).reshape(4, 8)[:, int(os.environ["RANK"]) * 2:][:, :2]
            twinscope.record("h", shard, dims="b h[tp]")
    """
    processes = [script(program, RANK=str(rank), WORLD_SIZE="4") for rank in range(4)]
    for process in processes:
        assert process.wait() == 0, process.communicate()
    listing = twinscope.ls(tmp_path / "run")
    assert listing.names == [f"rank-{rank}/h" for rank in range(4)]
    assert listing.meta is not None and listing.meta["world_size"] == 4
    whole = {"h": np.arange(32, dtype=np.float32).reshape(4, 8)}
    report = twinscope.diff(whole, tmp_path / "run")
    assert report.agree and report.pairs[0].verdict == "identical" and len(report.pairs) == 1


def test_the_rank_is_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="rank 4 is not one of 4"):
        twinscope.capture(tmp_path / "run", rank=4, world_size=4)
    monkeypatch.setenv("RANK", "first")
    with pytest.raises(ValueError, match="RANK is 'first'"):
        twinscope.capture(tmp_path / "run")


def test_a_forked_child_records_nothing_into_its_parents_run(tmp_path: Path) -> None:
    with twinscope.capture(tmp_path / "run"):
        twinscope.record("parent", 1)
        if (child := os.fork()) == 0:
            twinscope.record("child", 2)
            os._exit(0)
        os.waitpid(child, 0)
        twinscope.record("after", 3)
    assert twinscope.ls(tmp_path / "run").names == ["parent", "after"]


def test_importing_the_package_imports_no_framework(script: Start) -> None:
    out, err = script("import sys, twinscope; print(sorted({'torch', 'numpy', 'jax'} & set(sys.modules)))").communicate()
    assert out.strip() == "[]", err


def test_notes_and_memory_are_kept(tmp_path: Path) -> None:
    with twinscope.capture(tmp_path / "run", label="bf16"):
        twinscope.note("prompt", {"text": "hello", "tokens": [1, 2]})
    lines = index(tmp_path / "run")
    assert [line["value"] for line in lines if line["k"] == "m"] == [{"text": "hello", "tokens": [1, 2]}]
    assert all(line["rss"] > 0 for line in lines if line["k"] == "a")
    meta = twinscope.ls({"x": 1}).meta
    assert meta is not None and meta["label"] == "source"


def test_a_note_that_is_no_json_does_not_stop_the_program(tmp_path: Path) -> None:
    with twinscope.capture(tmp_path / "run") as run:
        run.note("loss", {"now": float("nan"), "best": (1.5, float("-inf"))})
        run.note("optimizer", Path("x"))
        twinscope.note(np.str_("best"), np.float64(0.5))  # subclasses of str and float
        twinscope.record("x", 1)
    notes = [line["value"] for line in index(tmp_path / "run") if line["k"] == "m"]
    assert notes == [{"now": "NaN", "best": [1.5, "-Infinity"]}, "x", 0.5]
    assert twinscope.ls(run).names == ["x"]
