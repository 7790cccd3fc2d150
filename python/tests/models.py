"""Small torch models for the tests."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class Attention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.q_proj, self.k_proj, self.v_proj, self.o_proj = (nn.Linear(width, width) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        q, k, v = (proj(x).view(batch, length, self.heads, -1).transpose(1, 2) for proj in (self.q_proj, self.k_proj, self.v_proj))
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.o_proj(out.transpose(1, 2).reshape(batch, length, width))


class Mlp(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.act = nn.GELU()
        self.drop = nn.Dropout(0.1)

    def forward(self, x: Tensor) -> Tensor:
        return self.drop(self.down(self.act(self.up(x))))


class Layer(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.attn_norm, self.mlp_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attn, self.mlp = Attention(width, heads), Mlp(width)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn(self.attn_norm(x))
        return x + self.mlp(self.mlp_norm(x))


@dataclass
class Output:
    logits: Tensor
    hidden: tuple[Tensor, ...]


class Transformer(nn.Module):
    def __init__(self, layers: int = 3, width: int = 32, heads: int = 4, words: int = 50) -> None:
        super().__init__()
        self.embed = nn.Embedding(words, width)
        self.layers = nn.ModuleList(Layer(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, words, bias=False)

    def forward(self, ids: Tensor) -> Output:
        x = self.embed(ids)
        hidden = []
        for layer in self.layers:
            x = layer(x)
            hidden.append(x)
        return Output(self.head(self.norm(x)), tuple(hidden))


class RmsNorm(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(1 + 0.1 * torch.randn(width))

    def forward(self, x: Tensor) -> Tensor:
        return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6))


def rope(x: Tensor, theta: float, offset: int = 0) -> Tensor:
    half = x.size(-1) // 2
    angles = torch.outer(torch.arange(x.size(-2)) + offset, theta ** (-torch.arange(half) / half))
    left, right, cos, sin = x[..., :half], x[..., half:], angles.cos(), angles.sin()
    return torch.cat((left * cos - right * sin, right * cos + left * sin), -1)


class RopeAttention(nn.Module):
    """Grouped heads, turned by rope; the weights by torch's fused function, or written out. Everything that can be wrong is an attribute."""

    def __init__(self, width: int, heads: int, groups: int, fused: bool) -> None:
        super().__init__()
        self.size, self.repeats, self.fused = width // heads, heads // groups, fused
        self.q_proj, self.o_proj = nn.Linear(width, width, bias=False), nn.Linear(width, width, bias=False)
        self.k_proj, self.v_proj = (nn.Linear(width, groups * self.size, bias=False) for _ in range(2))
        self.theta, self.offset, self.scale, self.causal, self.tiled = 10000.0, 0, self.size**-0.5, True, False

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        q, k, v = (proj(x).view(batch, length, -1, self.size).transpose(1, 2) for proj in (self.q_proj, self.k_proj, self.v_proj))
        q, k = rope(q, self.theta, self.offset), rope(k, self.theta)
        if self.tiled:
            k, v = k.repeat(1, self.repeats, 1, 1), v.repeat(1, self.repeats, 1, 1)
        else:
            k, v = k.repeat_interleave(self.repeats, 1), v.repeat_interleave(self.repeats, 1)
        mask = torch.ones(length, length, dtype=torch.bool).tril() if self.causal else torch.ones(length, length, dtype=torch.bool)
        if self.fused:
            out = F.scaled_dot_product_attention(q, k, v, mask, scale=self.scale)
        else:
            out = F.softmax((q @ k.transpose(-1, -2) * self.scale).masked_fill(~mask, float("-inf")), dim=-1) @ v
        return self.o_proj(out.transpose(1, 2).reshape(batch, length, width))


class Experts(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.router = nn.Linear(width, 4, bias=False)
        self.experts = nn.ModuleList(nn.Linear(width, width) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        weights, chosen = self.router(x).softmax(-1).topk(2, -1)
        outputs = torch.stack([expert(x) for expert in self.experts], -2)
        return (torch.gather(outputs, -2, chosen[..., None].expand(*chosen.shape, x.size(-1))) * weights[..., None]).sum(-2)


class LlamaLayer(nn.Module):
    def __init__(self, width: int, fused: bool) -> None:
        super().__init__()
        self.input_norm, self.post_norm = RmsNorm(width), RmsNorm(width)
        self.attn, self.moe = RopeAttention(width, 8, 2, fused), Experts(width)
        self.residual = True

    def forward(self, x: Tensor) -> Tensor:
        attended = self.attn(self.input_norm(x))
        x = x + attended if self.residual else attended
        return x + self.moe(self.post_norm(x))


class Llama(nn.Module):
    def __init__(self, fused: bool, width: int = 64) -> None:
        super().__init__()
        self.embed = nn.Embedding(50, width)
        self.layers = nn.ModuleList(LlamaLayer(width, fused) for _ in range(3))
        self.norm = RmsNorm(width)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embed(ids)
        for layer in self.layers:
            x = layer(x)
        return self.norm(x)


def llama(*, fused: bool = True) -> Llama:
    torch.manual_seed(0)
    return Llama(fused).eval()


def transformer(seed: int = 0) -> Transformer:
    torch.manual_seed(seed)
    return Transformer().eval()


def ids(seed: int = 1) -> Tensor:
    return torch.randint(0, 50, (2, 8), generator=torch.Generator().manual_seed(seed))
