"""Attention weights, also of the fused kernels that never write them down.

A module that returns its weights has them among its outputs anyway. `scaled_dot_product_attention` does not: they are
computed a second time, from the queries and keys it was given, in the dtype of the queries with the softmax in f32.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from .session import TorchRun

LARGEST = 256 << 20  # bytes of one call's weights; a long sequence's would be larger than the rest of the run


def record_attention(
    run: TorchRun,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> None:
    """Records the weights of a call of `scaled_dot_product_attention`, which was given these."""
    name = run.module()
    if not run.keep(name or "model"):
        return
    shape = [*query.shape[:-1], key.shape[-2]]
    if math.prod(shape) * 4 > LARGEST:
        # Said, not silently left out.
        weights = torch.empty(shape, dtype=query.dtype, device="meta")
    else:
        weights = attention_weights(query, key, attn_mask, is_causal, scale, enable_gqa)
    inputs = run.flow.made_from_all([query, key])
    run.save(name, weights, role="attn", inputs=inputs, phase="fwd", op="scaled_dot_product_attention")


def attention_weights(
    query: torch.Tensor, key: torch.Tensor, mask: torch.Tensor | None, is_causal: bool, scale: float | None, enable_gqa: bool
) -> torch.Tensor:
    """`softmax(q k^T * scale + mask)`, as torch documents `scaled_dot_product_attention`; before dropout."""
    if enable_gqa:
        key = key.repeat_interleave(query.size(-3) // key.size(-3), -3)
    scores = (query @ key.transpose(-2, -1)).float() * (1 / math.sqrt(query.size(-1)) if scale is None else scale)
    if is_causal:
        mask = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril()
    if mask is not None:
        scores = scores.masked_fill(~mask, -math.inf) if mask.dtype == torch.bool else scores + mask
    return scores.softmax(-1).to(query.dtype)
