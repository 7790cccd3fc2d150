#!/usr/bin/env python3
"""What people run today: the same totals in PyTorch, in chunks, on all threads. torch_totals.py A.safetensors B.safetensors"""
import sys
import torch
from safetensors import safe_open

CHUNK = 1 << 22


def ordered(x, dtype):
    """Bits as integers that count representable numbers."""
    bits = {torch.float32: torch.int32, torch.bfloat16: torch.int16, torch.float16: torch.int16}[dtype]
    ints = x.view(bits).to(torch.int64)
    low = torch.iinfo(bits).min
    return torch.where(ints < 0, low - ints, ints)


def totals(reference, candidate):
    r_all, c_all = reference.flatten(), candidate.flatten()
    t = dict(count=r_all.numel(), differing=0, max_abs=0.0, sum_abs=0.0, max_rel=0.0, sum_rel=0.0, sum_sq=0.0, rr=0.0, cc=0.0, rc=0.0, max_ulp=0, compared=0)
    sides = {side: dict(sum=0.0, min=float("inf"), max=float("-inf"), nan=0, inf=0, zero=0) for side in "rc"}
    for at in range(0, r_all.numel(), CHUNK):
        rn, cn = r_all[at : at + CHUNK], c_all[at : at + CHUNK]
        r, c = rn.double(), cn.double()
        finite = torch.isfinite(r) & torch.isfinite(c)
        d = torch.where(finite, c - r, 0.0)
        a = d.abs()
        scale = torch.maximum(r.abs(), c.abs())
        rel = torch.where(scale > 0, a / scale, 0.0)
        t["differing"] += int((d != 0).sum())
        t["compared"] += int(finite.sum())
        t["max_abs"] = max(t["max_abs"], float(a.max()))
        t["sum_abs"] += float(a.sum())
        t["max_rel"] = max(t["max_rel"], float(rel.max()))
        t["sum_rel"] += float(rel.sum())
        t["sum_sq"] += float((d * d).sum())
        t["rr"] += float((r * r).sum())
        t["cc"] += float((c * c).sum())
        t["rc"] += float((r * c).sum())
        t["max_ulp"] = max(t["max_ulp"], int((ordered(cn, cn.dtype) - ordered(rn, rn.dtype)).abs().max()))
        for side, x in (("r", r), ("c", c)):
            s = sides[side]
            s["sum"] += float(x.sum())
            s["min"], s["max"] = min(s["min"], float(x.min())), max(s["max"], float(x.max()))
            s["nan"] += int(x.isnan().sum())
            s["inf"] += int(x.isinf().sum())
            s["zero"] += int((x == 0).sum())
    return t, sides


with safe_open(sys.argv[1], "pt") as reference, safe_open(sys.argv[2], "pt") as candidate:
    for name in reference.keys():
        print(name, totals(reference.get_tensor(name), candidate.get_tensor(name)))
