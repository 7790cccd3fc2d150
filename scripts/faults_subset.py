#!/usr/bin/env python3
"""Copies a fault bench into testdata/faultbench, one layer of each run: faults_subset.py BENCH_DIR

Every case stays, with the tensors that its verdict and cause rest on: the inputs, the layer with the fault and what leads into and out of
it. Whole runs would be two and a half times the size. Needs torch; `expected.json` is copied as it is.
"""
import pathlib, shutil, sys
import torch

bench = pathlib.Path(sys.argv[1])
out = pathlib.Path(__file__).resolve().parent.parent / "testdata" / "faultbench"


def kept(name: str) -> bool:
    return not name.startswith(("0_", "2_")) or name in ("0_layer_out", "2_post_ln_pre_attn")


for path in sorted(bench.glob("*.pth")):
    run = torch.load(path)
    torch.save({name: tensor.clone() if hasattr(tensor, "clone") else tensor for name, tensor in run.items() if kept(name)}, out / path.name)
shutil.copyfile(bench / "expected.json", out / "expected.json")
