"""Fields and words of the documents, written from the Rust types in `crates/report` by `make schema`. Do not edit."""

from __future__ import annotations

from typing import Literal

Verdict = Literal["identical", "rounding", "harmless", "diverged", "incomparable"]
Origin = Literal["own", "inherited"]
Overall = Literal["agree", "diverged", "incomparable"]
Rule = Literal["manual", "layer_stage", "exact", "normalized", "pattern", "plugin", "fuzzy", "shape", "values"]
Evidence = Literal["shape", "values", "declared", "user"]
CauseKind = Literal["permuted", "transposed", "swapped", "wrong_tensor", "shifted", "rotated", "masked", "partial_sum", "missing_term", "extra_term", "scale", "channel_scale", "row_scale", "offset", "rounded", "quantized", "clipped", "dropout", "negated", "function", "localized", "low_rank", "row_affine", "nonfinite", "softmax_scale", "routing", "input_differs", "unknown"]

FIELDS: dict[str, tuple[str, ...]] = {
    "Report": ("candidate", "computed_in", "divergences", "findings", "first_divergence", "layer_offset", "left_out", "only_candidate", "only_reference", "pairs", "partial", "reference", "schema", "skipped", "verdict",),
    "Pair": ("agrees_at", "candidate", "causes", "dtypes", "layout", "name", "order", "origin", "reason", "reference", "rule", "score", "shape", "totals", "verdict",),
    "Totals": ("argmax", "beyond", "candidate", "compared", "cosine", "count", "differing", "magnitudes", "max_abs", "max_rel", "max_ulp", "mean_abs", "mean_rel", "mse", "reference", "rel_l2", "top", "ulps", "worst", "worst_exact",),
    "SideTotals": ("inf", "max", "mean", "min", "nan", "norm", "std", "zero",),
    "Worst": ("exact", "index", "values",),
    "Cause": ("details", "explained", "kind", "text",),
    "Layout": ("by", "steps", "text",),
    "Leftover": ("name", "score", "suggestion",),
    "Skipped": ("name", "reason", "side",),
    "Finding": ("kind", "side", "text",),
    "FirstDivergence": ("name", "pair",),
    "Batch": ("reports", "summary",),
    "BatchRow": ("candidate", "diverged", "error", "exit", "first_divergence", "hint", "missing", "name", "pairs", "partial", "reference", "verdict",),
    "Explained": ("attempts", "candidate", "causes", "follows", "formula", "noise", "off", "pair", "reference", "rounding", "schema",),
    "Attempt": ("explained", "hypothesis", "kind", "proven", "text",),
    "Listing": ("findings", "format", "meta", "skipped", "source", "tensors", "values",),
    "TensorRow": ("bytes", "dtype", "meta", "name", "order", "sha256", "shape",),
    "ValueRow": ("name", "type", "value",),
    "SkippedRow": ("name", "reason",),
    "FindingRow": ("kind", "text",),
    "StatsListing": ("findings", "format", "skipped", "source", "tensors",),
    "StatsRow": ("count", "dtype", "finite", "inf", "max", "max_abs", "mean", "min", "name", "nan", "neg_inf", "norm", "order", "pos_inf", "shape", "squares", "std", "sum", "zero",),
}
