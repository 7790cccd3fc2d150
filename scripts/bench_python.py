#!/usr/bin/env python3
"""What capturing costs, as ratios in one run: `target/python/bin/python scripts/bench_python.py [--rounds N] [--batch N]`.

A BERT of MiniLM's size with random weights, and a stack of layers with large outputs; one thread for the model. Each way of recording runs in every round, and the least
time of all rounds counts, because the machine may be busy with other things. `closed` includes closing the run, `model` ends when the
model does; `own CPU` is that of the model's process, `all CPU` with the writer's.
"""

from __future__ import annotations

import argparse
import os
import random
import resource
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "python" / "src"), str(ROOT / "examples" / "minilm")]

import torch
import torch_run
import twinscope
from torch_run import Bert
from twinscope._channel import reap

CONFIG = {
    "hidden_size": 384, "vocab_size": 30522, "type_vocab_size": 2, "max_position_embeddings": 512, "layer_norm_eps": 1e-12,
    "num_attention_heads": 12, "intermediate_size": 1536, "num_hidden_layers": 6,
}  # fmt: skip


def bert(batch: int) -> tuple[torch.nn.Module, Callable[[], object]]:
    # Without the example's own calls of `record`: both ways record the outputs of modules, and nothing else.
    torch_run.twinscope = SimpleNamespace(record=lambda name, value, **_: value)  # type: ignore[attr-defined]
    model = Bert(CONFIG).eval()
    ids = torch.randint(0, 30522, (batch, 128), generator=torch.Generator().manual_seed(0))
    return model, lambda: model(input_ids=ids, attention_mask=torch.ones_like(ids))


def wide() -> tuple[torch.nn.Module, Callable[[], object]]:
    """Few and large: every output is 8 MiB."""
    model = torch.nn.Sequential(*[layer for _ in range(6) for layer in (torch.nn.Linear(1024, 1024), torch.nn.GELU())]).eval()
    rows = torch.randn(2048, 1024, generator=torch.Generator().manual_seed(0))
    return model, lambda: model(rows)


def with_torch_save(model: torch.nn.Module, folder: Path, forward: Callable[[], object]) -> None:
    """What people write themselves: a hook on every module, a file for every tensor."""
    count = 0

    def hook(name: str) -> Callable[..., None]:
        def save(_: object, __: object, output: object) -> None:
            nonlocal count
            values = output.values() if isinstance(output, dict) else output if isinstance(output, tuple) else [output]
            for value in values:
                torch.save(value, folder / f"{count:05}_{name}.pt")
                count += 1

        return save

    folder.mkdir()
    handles = [module.register_forward_hook(hook(name)) for name, module in model.named_modules()]
    forward()
    for handle in handles:
        handle.remove()


def plain_writing(run: Path, folder: Path) -> tuple[float, int]:
    """The same bytes as the run holds, from memory into one file."""
    pieces = [file.read_bytes() for file in run.glob("rank-*/seg-*.safetensors")]
    began = time.perf_counter()
    with open(folder / "plain", "wb", buffering=0) as file:
        for piece in pieces:
            for at in range(0, len(piece), 1 << 20):
                file.write(piece[at : at + (1 << 20)])
    return time.perf_counter() - began, sum(map(len, pieces))


def whole_cpu() -> float:
    """Of this process and those that it started and that ended."""
    return sum(use.ru_utime + use.ru_stime for use in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--batch", type=int, default=8)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    with torch.no_grad():
        measure(f"BERT, batch {arguments.batch}", *bert(arguments.batch), arguments.rounds, everything=True)
        measure("six linear layers, outputs of 8 MiB", *wide(), arguments.rounds, everything=False)

    calls = 200_000
    began = time.perf_counter()
    for _ in range(calls):
        twinscope.record("x", 0)
    print(f"twinscope.record without a capture: {1e9 * (time.perf_counter() - began) / calls:.0f} ns")


def measure(title: str, model: torch.nn.Module, forward: Callable[[], object], rounds: int, *, everything: bool) -> None:
    def captured(folder: Path, **settings: object) -> Callable[[], None]:
        def run() -> None:
            with twinscope.capture(model, folder / "run", **settings) as opened:
                forward()
                ran.append(time.perf_counter())
            records.append(opened.records)

        return run

    outputs = {"inputs": False, "attention": False}
    ways: dict[str, Callable[[Path], Callable[[], None]]] = {
        "bare model": lambda folder: forward,
        "bare model again": lambda folder: forward,
        "outputs of all modules": lambda folder: captured(folder, **outputs),
        "the same, no flow": lambda folder: captured(folder, **outputs, flow=False),
        "the same, sync=True": lambda folder: captured(folder, **outputs, sync=True),
        "outputs, inputs, attention": lambda folder: captured(folder),
        "six layers only": lambda folder: captured(folder, **outputs, include="encoder.layer.?"),
        "statistics only": lambda folder: captured(folder, **outputs, stats_only=True),
        "every operation": lambda folder: captured(folder, ops=True),
        "hooks and torch.save": lambda folder: lambda: with_torch_save(model, folder / "saved", forward),
    }
    if not everything:
        for name in ("six layers only", "statistics only", "every operation", "outputs, inputs, attention"):
            del ways[name]
    least: dict[str, float] = {}
    least_cpu: dict[str, float] = {}
    least_whole: dict[str, float] = {}
    model_part: dict[str, float] = {}
    plain, size = float("inf"), 0
    records: list[int] = []
    ran: list[float] = []
    counts: dict[str, int] = {}
    forward()
    for turn in range(rounds):
        # In another order each time: what a way leaves behind (memory, dirty pages) is not always the same one's burden.
        for name, way in random.Random(turn).sample(list(ways.items()), len(ways)):
            folder = Path(tempfile.mkdtemp(prefix="twinscope-bench-"))
            run = way(folder)
            ran.clear()
            cpu, all_cpu = time.process_time(), whole_cpu()
            began = time.perf_counter()
            run()
            took = time.perf_counter() - began
            reap(wait=True)  # a process counts when it has ended
            least_cpu[name] = min(least_cpu.get(name, float("inf")), time.process_time() - cpu)
            least_whole[name] = min(least_whole.get(name, float("inf")), whole_cpu() - all_cpu)
            least[name] = min(least.get(name, float("inf")), took)
            model_part[name] = min(model_part.get(name, float("inf")), (ran[-1] - began) if ran else took)
            counts[name] = records[-1] if ran else 0
            if name == "outputs of all modules":
                seconds, size = plain_writing(folder / "run", folder)
                plain = min(plain, seconds)
            shutil.rmtree(folder)

    bare = least["bare model"]
    print(f"{title}: bare {1e3 * bare:.0f} ms; ratios to it, least of {rounds} rounds")
    print(f"{'':30}{'closed':>8}{'model':>8}{'own CPU':>9}{'all CPU':>9}{'records':>9}")
    for name in ways:
        own, everybody = least_cpu[name] / least_cpu["bare model"], least_whole[name] / least_whole["bare model"]
        print(f"{name:30}{least[name] / bare:8.2f}{model_part[name] / bare:8.2f}{own:9.2f}{everybody:9.2f}{counts[name] or '':>9}")
    for name in ("outputs of all modules", "the same, sync=True"):
        parts = [("until closed", least, least), ("until the model is done", model_part, least), ("CPU of the model's process", least_cpu, least_cpu)]
        for part, ours, theirs in parts:
            extra = ours[name] - ours["bare model"]
            saving = theirs["hooks and torch.save"] - theirs["bare model"]
            ratio = f"{saving / extra:.1f}" if extra > 0.01 * bare else "nothing to measure"
            print(f"{name}, {part}: overhead of hooks and torch.save / ours: {ratio}")
        print(f"{name}: bytes/s of recording / plain writing of the same {size >> 20} MiB: {plain / max(least[name] - bare, 1e-9):.2f}")


if __name__ == "__main__":
    # Whether glibc gives a model's freed memory back and takes it again is a matter of chance that lasts as long as the process: for all ways alike, it keeps it.
    steady = {"OMP_NUM_THREADS": "1", "MALLOC_TRIM_THRESHOLD_": str(1 << 32), "MALLOC_MMAP_THRESHOLD_": str(1 << 32)}
    if any(name not in os.environ for name in steady):
        os.execve(sys.executable, [sys.executable, *sys.argv], {**steady, **os.environ})
    main()
