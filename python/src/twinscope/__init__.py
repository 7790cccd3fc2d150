"""Finds where two runs of the same neural network part ways, whether it matters, and why.

    with twinscope.capture(model, "run_a"):
        model(x)
    report = twinscope.diff("run_a", "run_b")

`capture` records a run; `record`, `span`, `step` and `note` add to it from anywhere. `diff`, `ls`, `stats`, `show`, `explain` and
`serve` ask the `twinscope` program, which comes in the same wheel. torch, NumPy and JAX are used when the program that
imports this has them, and never imported before.
"""

from __future__ import annotations

import atexit as _atexit

__version__ = "0.1.0"

from ._binary import Error, binary
from ._capture import capture
from ._commands import Server, Tensors, diff, explain, ls, serve, show, stats
from ._recorder import CaptureError, Run, close_all as _close_all, note, record, span, step
from ._report import Cause, Finding, FirstDivergence, Layout, Leftover, Listing, Pair, Report, SideTotals, Skipped, TensorInfo, TensorStats, Totals, Value

_atexit.register(_close_all)

__all__ = [
    "CaptureError", "Cause", "Error", "Finding", "FirstDivergence", "Layout", "Leftover", "Listing", "Pair", "Report", "Run", "Server",
    "SideTotals", "Skipped", "TensorInfo", "TensorStats", "Tensors", "Totals", "Value",
    "binary", "capture", "diff", "explain", "ls", "note", "record", "serve", "show", "span", "stats", "step",
]  # fmt: skip
