"""JAX arrays, also of compiled functions."""

from __future__ import annotations

from pathlib import Path

import jax
import jax.numpy as jnp
import twinscope


def forward(x: jax.Array) -> jax.Array:
    hidden = twinscope.record("hidden", jnp.tanh(x))
    return twinscope.record("out", (hidden * 2).astype(jnp.bfloat16))


def test_arrays_of_jax_are_recorded_with_their_dtype(tmp_path: Path) -> None:
    with twinscope.capture(tmp_path / "run"):
        forward(jnp.arange(4.0))
    assert [(tensor.name, tensor.dtype) for tensor in twinscope.ls(tmp_path / "run")] == [("hidden", "f32"), ("out", "bf16")]


def test_a_compiled_function_records_when_it_runs(tmp_path: Path) -> None:
    compiled = jax.jit(forward)
    with twinscope.capture(tmp_path / "plain"):
        forward(jnp.arange(4.0))
    with twinscope.capture(tmp_path / "compiled"):
        for _ in range(2):
            compiled(jnp.arange(4.0)).block_until_ready()
        jax.effects_barrier()
    assert twinscope.ls(tmp_path / "compiled").names == ["hidden", "out", "hidden@1", "out@1"]
    report = twinscope.diff(tmp_path / "plain", tmp_path / "compiled", allow_missing=True)
    assert report.verdict == "agree"
