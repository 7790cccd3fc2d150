"""What causes add to a diff: bench_causes.py BINARY

A small diverged run, where everything is looked at, and large ones, where it must not be: 91 tensors of a million values as a transformer
records them, once with rounding alone and once with a fault (one token of one layer is zero); and a run of attention with its heads, its
probabilities and all weights, once with rounding alone and once with another rope theta in one layer. The runs are written to a temporary folder, 730 MB each
pair at most.
"""
import os
import shutil
import subprocess
import sys
import tempfile
import time

import numpy as np

BINARY = sys.argv[1]
LAYERS, SIZE = 9, 1024
# Of the run with heads.
BLOCKS, TOKENS, HEADS, INNER = 4, 512, 16, 2816


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


class Recorder:
    """Writes tensors in the order they are made; the candidate rounds anew at every stage."""

    def __init__(self, folder, noise):
        os.makedirs(folder)
        self.folder, self.noise, self.count = folder, noise, 0
        self.weights, self.rounding = np.random.default_rng(1), np.random.default_rng(2)

    def save(self, name, values):
        np.save(os.path.join(self.folder, f"{self.count:03}_{name}.npy"), values)
        self.count += 1
        return values

    def record(self, name, values):
        if self.noise:
            values = values * (1 + np.float32(self.noise) * self.rounding.standard_normal(values.shape, dtype=np.float32))
        return self.save(name, values)

    def matrix(self, rows, columns):
        return self.weights.standard_normal((rows, columns), dtype=np.float32) / np.float32(columns**0.5)

    def norm(self, values):
        weight = 1 + np.float32(0.1) * self.weights.standard_normal(SIZE, dtype=np.float32)
        return values / np.sqrt((values * values).mean(-1, keepdims=True) + np.float32(1e-5)) * weight


def gated(gate, up):
    return gate / (1 + np.exp(-gate)) * up


def run(folder, noise, fault):
    """A residual stream with norms, a gate and its product: 91 tensors."""
    of = Recorder(folder, noise)
    record = of.record
    x = record("embed", of.weights.standard_normal((1, SIZE, SIZE), dtype=np.float32))
    for layer in range(LAYERS):
        normed = record(f"{layer}_post_ln_pre_attn", of.norm(x))
        mixed = record(f"{layer}_post_attn", normed @ of.matrix(SIZE, SIZE))
        mixed = record(f"{layer}_post_attn_pre_resid", mixed @ of.matrix(SIZE, SIZE))
        x = record(f"{layer}_resid_mid", x + mixed)
        normed = record(f"{layer}_pre_mlp", of.norm(x))
        gate, up = (record(f"{layer}_{name}", normed @ of.matrix(SIZE, SIZE)) for name in ("gate", "up"))
        gate = record(f"{layer}_gate_act", gate / (1 + np.exp(-gate)))
        product = record(f"{layer}_act", gate * up)
        down = product @ of.matrix(SIZE, SIZE)
        if fault and layer == LAYERS // 2:
            down[:, 700] = 0
        x = record(f"{layer}_layer_out", x + down)


def turned(values, theta):
    """Rope, by halves."""
    half = values.shape[-1] // 2
    angles = np.outer(np.arange(TOKENS), theta ** (-np.arange(half) / half)).astype(np.float32)
    cos, sin, a, b = np.cos(angles), np.sin(angles), values[..., :half], values[..., half:]
    return np.concatenate([a * cos - b * sin, b * cos + a * sin], -1)


def run_with_heads(folder, noise, fault):
    """Attention with its heads, its probabilities and every weight: 93 tensors."""
    of = Recorder(folder, noise)
    record = of.record

    def product(values, name, rows, columns):
        weight = of.save(f"{name}.weight", of.matrix(rows, columns))
        return values @ weight.T

    def heads(values):
        return np.ascontiguousarray(values.reshape(TOKENS, HEADS, -1).transpose(1, 0, 2)[None])

    later = np.triu(np.ones((TOKENS, TOKENS), dtype=bool), 1)
    x = record("embed", of.weights.standard_normal((1, TOKENS, SIZE), dtype=np.float32))
    for layer in range(BLOCKS):
        at, theta = f"layers.{layer}", 500000.0 if fault and layer == BLOCKS // 2 else 10000.0
        normed = record(f"{at}.input_layernorm", of.norm(x))
        q, k, v = (record(f"{at}.{name}", heads(product(normed, f"{at}.self_attn.{name}_proj", SIZE, SIZE))) for name in "qkv")
        q, k = record(f"{at}.q_rope", turned(q, theta)), record(f"{at}.k_rope", turned(k, theta))
        scores = q @ k.swapaxes(-1, -2) / np.float32((SIZE // HEADS) ** 0.5)
        scores[..., later] = -np.inf
        scores = np.exp(scores - scores.max(-1, keepdims=True))
        probabilities = record(f"{at}.probs", scores / scores.sum(-1, keepdims=True))
        mixed = record(f"{at}.ctx", np.ascontiguousarray((probabilities @ v)[0].transpose(1, 0, 2)).reshape(1, TOKENS, SIZE))
        mixed = record(f"{at}.self_attn", product(mixed, f"{at}.self_attn.o_proj", SIZE, SIZE))
        x = record(f"{at}.resid_mid", x + mixed)
        normed = record(f"{at}.post_attention_layernorm", of.norm(x))
        gate, up = (record(f"{at}.{name}", product(normed, f"{at}.mlp.{name}_proj", INNER, SIZE)) for name in ("gate", "up"))
        act = record(f"{at}.act", gated(gate, up))
        x = record(at, x + record(f"{at}.mlp", product(act, f"{at}.mlp.down_proj", SIZE, INNER)))


def report_large(folder, make, fault):
    """Against one reference, rounding alone and the fault."""
    reference, candidate = os.path.join(folder, "reference"), os.path.join(folder, "candidate")
    make(reference, 0, False)
    for what, has_fault in (("rounding alone", False), (fault, True)):
        make(candidate, 1e-7, has_fault)
        report(f"{make.__doc__.split(':')[0].lower()}: {what}", 2, reference, candidate)
        shutil.rmtree(candidate)
    shutil.rmtree(reference)


report("small, another theta", 5, "testdata/faults/reference.pth", "testdata/faults/rope_theta.over_bf16.pth")
with tempfile.TemporaryDirectory() as folder:
    report_large(folder, run, "one token zero")
    report_large(folder, run_with_heads, "another theta")
