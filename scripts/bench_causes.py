"""What causes add to a diff: bench_causes.py BINARY

A small diverged run, where everything is looked at, and large ones, where it must not be: 91 tensors of a million values as a transformer
records them, once with rounding alone and once with a fault (one token of one layer is zero). The runs are written to a temporary folder, 730 MB each pair.
"""
import os
import subprocess
import sys
import tempfile
import time

import numpy as np

BINARY = sys.argv[1]
LAYERS, SIZE = 9, 1024


def best(times, reference, candidate, *flags):
    runs = []
    for _ in range(times):
        start = time.perf_counter()
        subprocess.run([BINARY, "diff", reference, candidate, *flags], capture_output=True, check=False)
        runs.append(time.perf_counter() - start)
    return min(runs)


def report(what, times, reference, candidate):
    whole, bare = best(times, reference, candidate), best(times, reference, candidate, "--no-causes")
    print(f"  {what}: {whole:.3f} with, {bare:.3f} without: {whole - bare:.3f} s for the causes")


def run(folder, noise, fault):
    """A residual stream with norms, a gate and its product; the candidate rounds anew at every stage: 91 tensors."""
    os.makedirs(folder)
    weights, rounding = np.random.default_rng(1), np.random.default_rng(2)
    count = 0

    def record(name, values):
        nonlocal count
        if noise:
            values = values * (1 + np.float32(noise) * rounding.standard_normal(values.shape, dtype=np.float32))
        np.save(os.path.join(folder, f"{count:03}_{name}.npy"), values)
        count += 1
        return values

    def matrix():
        return weights.standard_normal((SIZE, SIZE), dtype=np.float32) / np.float32(SIZE**0.5)

    def norm(values):
        weight = 1 + np.float32(0.1) * weights.standard_normal(SIZE, dtype=np.float32)
        return values / np.sqrt((values * values).mean(-1, keepdims=True) + np.float32(1e-5)) * weight

    x = record("embed", weights.standard_normal((1, SIZE, SIZE), dtype=np.float32))
    for layer in range(LAYERS):
        normed = record(f"{layer}_post_ln_pre_attn", norm(x))
        mixed = record(f"{layer}_post_attn", normed @ matrix())
        mixed = record(f"{layer}_post_attn_pre_resid", mixed @ matrix())
        x = record(f"{layer}_resid_mid", x + mixed)
        normed = record(f"{layer}_pre_mlp", norm(x))
        gate, up = record(f"{layer}_gate", normed @ matrix()), record(f"{layer}_up", normed @ matrix())
        gate = record(f"{layer}_gate_act", gate / (1 + np.exp(-gate)))
        product = record(f"{layer}_act", gate * up)
        down = product @ matrix()
        if fault and layer == LAYERS // 2:
            down[:, 700] = 0
        x = record(f"{layer}_layer_out", x + down)


report("small, another theta", 5, "testdata/faults/reference.pth", "testdata/faults/rope_theta.over_bf16.pth")
with tempfile.TemporaryDirectory() as folder:
    reference, candidate = os.path.join(folder, "reference"), os.path.join(folder, "candidate")
    run(reference, 0, False)
    run(candidate, 1e-7, False)
    report("large, rounding alone", 2, reference, candidate)
    for name in os.listdir(candidate):
        os.remove(os.path.join(candidate, name))
    os.rmdir(candidate)
    run(candidate, 1e-7, True)
    report("large, one token zero", 2, reference, candidate)
