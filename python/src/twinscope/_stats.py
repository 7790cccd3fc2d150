"""A tensor's statistics, when only they are asked for. Over finite values; NaN and infinities are counted, never averaged."""

from __future__ import annotations

import math
from typing import Any

from ._arrays import Facts, is_torch
from ._writer import Line


def stats_of(value: Any, facts: Facts) -> Line:
    return _torch(value) if is_torch(value) else _numpy(value)


def _torch(tensor: Any) -> Line:
    import torch

    values = tensor.detach().reshape(-1)
    values = torch.view_as_real(values).reshape(-1) if values.is_complex() else values
    values = values.to(torch.float64) if values.device.type != "mps" else values.cpu().to(torch.float64)
    nan, inf = values.isnan(), values.isinf()
    finite = values[~(nan | inf)]
    return _line(finite, values.numel(), int(nan.sum()), int(inf.sum()))


def _numpy(value: Any) -> Line:
    import numpy

    values = numpy.asarray(value).reshape(-1)
    values = values.view(values.real.dtype) if numpy.iscomplexobj(values) else values
    values = values.astype(numpy.float64)
    nan, inf = numpy.isnan(values), numpy.isinf(values)
    return _line(values[~(nan | inf)], values.size, int(nan.sum()), int(inf.sum()))


def _line(finite: Any, count: int, nan: int, inf: int) -> Line:
    """`None` where nothing finite was seen."""
    line: Line = {"count": count, "nan": nan, "inf": inf, "zero": int((finite == 0).sum())}
    if not len(finite):
        return {**line, "mean": None, "std": None, "min": None, "max": None, "norm": None}
    mean = float(finite.mean())
    norm = math.sqrt(float((finite * finite).sum()))
    std = math.sqrt(float(((finite - mean) ** 2).mean()))
    numbers = {"mean": mean, "std": std, "min": float(finite.min()), "max": float(finite.max()), "norm": norm}
    # Squares of f64 values can leave its range; what is not a number is not told.
    return {**line, **{key: number if math.isfinite(number) else None for key, number in numbers.items()}}
