"""Attention, and choices: what decides inside a model and is no module's output.

Attention weights are recorded where they are made. A softmax makes them in sight; `scaled_dot_product_attention` does not, so they are
computed a second time, from the queries and keys it was given, in the dtype of the queries with the softmax in f32. Queries, keys and
values that were computed between modules (turned by a rotary embedding, repeated for groups of heads) are recorded as well: only
they tell a wrong rotation from a wrong mask. So is what `topk` chose: a router's experts.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from .parallel import local

if TYPE_CHECKING:
    from .session import TorchRun

LARGEST = 256 << 20  # bytes of one call's weights; a long sequence's would be larger than the rest of the run


def fused(
    run: TorchRun,
    output: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> None:
    """A call of `scaled_dot_product_attention`, which was given these: what it was given, then its weights."""
    name = run.module()
    if not run.keep(name or "model"):
        return
    for arg, given in (("query", query), ("key", key), ("value", value)):
        given_to(run, f"{name}.attn" if name else "attn", arg, given)
    shape = [*query.shape[:-1], key.shape[-2]]
    if math.prod(shape) * 4 > LARGEST:
        # Said, not silently left out.
        weights = torch.empty(shape, dtype=query.dtype, device="meta")
    else:
        weights = attention_weights(query, key, attn_mask, is_causal, scale, enable_gqa)
    inputs = run.flow.made_from_all([query, key])
    run.find(name, weights, role="attn", inputs=inputs, op="scaled_dot_product_attention")


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


def softmax(run: TorchRun, output: Any, scores: torch.Tensor, dim: int | None = None, *_: object, **__: object) -> None:
    """Over the last of four dimensions it makes attention weights; any other is an operation worth seeing (a router's)."""
    if not isinstance(output, torch.Tensor) or isinstance(run.frames[-1].module, torch.nn.Softmax):
        return  # the module's own output
    inputs = run.flow.made_from_all([local(scores)])
    if output.dim() == 4 and dim in (-1, 3):
        run.find(run.module(), output, role="attn", dims="b h s t", inputs=inputs, op="softmax")
    else:
        name = run.module()
        run.find(name, output, role="op", op="softmax", call=run.next_call(name, "op", "softmax"), inputs=inputs)


def matmul(run: TorchRun, output: Any, left: Any, right: Any, *_: object, **__: object) -> None:
    """A product of two activations: attention that is written out."""
    if not isinstance(left, torch.Tensor) or not isinstance(right, torch.Tensor) or min(left.dim(), right.dim()) < 3:
        return
    name = run.module()
    for arg, value in (("left", left), ("right", right)):
        given_to(run, f"{name}.matmul" if name else "matmul", arg, value)


def topk(run: TorchRun, output: Any, given: torch.Tensor, *_: object, **__: object) -> None:
    """What a router chose, and how much it is worth."""
    name, inputs = run.module(), run.flow.made_from_all([local(given)])
    call = run.next_call(name, "op", "topk")
    for arg, value in zip(("values", "indices"), output):
        run.find(name, value, role="op", op="topk", arg=arg, call=call, inputs=inputs)


def given_to(run: TorchRun, name: str, arg: str, value: torch.Tensor) -> None:
    """Records what a function is given, where it was computed between modules: views of what they returned are there already."""
    if run.takes_inputs and run.flow.is_new(local(value)):
        run.find(name, value, role="in", arg=arg)


#: By the name of torch's function; with the mode's own follow of data, all that is done for each call.
WATCHED: dict[str, Callable[..., None]] = {
    "scaled_dot_product_attention": fused,
    "softmax": softmax,
    "matmul": matmul,
    "__matmul__": matmul,
    "bmm": matmul,
    "topk": topk,
}
