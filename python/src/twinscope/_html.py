"""Reports and listings for people: a few lines of text, or a page fragment for notebooks.

The fragment is self-contained: no script, no request, styles that apply to nothing else. Names come from files and are escaped.
"""

from __future__ import annotations

import math
from collections import Counter
from html import escape
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ._report import Listing, Pair, Report

MOST_ROWS = 200
STYLE = """
.twinscope{font:13px/1.45 system-ui,sans-serif;max-width:1000px}
.twinscope table{border-collapse:collapse;margin:.4em 0}
.twinscope th,.twinscope td{text-align:left;padding:2px 12px 2px 0;border-bottom:1px solid #8884;white-space:nowrap}
.twinscope td.n,.twinscope th.n{text-align:right;font-variant-numeric:tabular-nums}
.twinscope code{font-size:12px}
.twinscope .diverged b,.twinscope b.diverged{color:#c4314b}
.twinscope b.agree{color:#1a7f4b}
.twinscope .quiet{opacity:.7}
"""


def number(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, float) and not math.isfinite(value):
        return {math.inf: "inf", -math.inf: "-inf"}.get(value, "NaN")
    return f"{value:.3g}"


def headline(report: Report) -> str:
    if report.verdict == "agree":
        counts = Counter(pair.verdict for pair in report.pairs)
        return "agree: " + ", ".join(f"{count} {verdict}" for verdict, count in counts.items())
    first = report.first
    if first is None:
        return f"{report.verdict}: {len(report.pairs)} pairs"
    rel = number(first.totals.rel_l2) if first.totals else "–"
    return f"diverged at {first.name} (pair {first.order} of {len(report.pairs)}, rel_l2 {rel})"


def sentences(report: Report) -> list[str]:
    """The report in a few lines."""
    lines = [f"{headline(report)}", f"  reference {report.reference}", f"  candidate {report.candidate}"]
    first = report.first
    if first is not None:
        lines += [f"  cause: {cause.kind}, {cause.text}" for cause in first.causes[:3]]
        others = [report.pairs[at].name for at in report.divergences[1:6]]
        if others:
            lines.append(f"  also by themselves: {', '.join(others)}")
    for side, left in (("reference", report.only_reference), ("candidate", report.only_candidate)):
        if left:
            more = f" and {len(left) - 3} more" if len(left) > 3 else ""
            lines.append(f"  only in the {side}: {', '.join(one.name for one in left[:3])}{more}")
    if report.skipped:
        lines.append(f"  not read: {len(report.skipped)} (see .skipped)")
    if report.partial:
        lines.append("  stopped early: not everything was measured")
    return lines


def report(report: Report) -> str:
    parts = [f"<style>{STYLE}</style>", '<div class="twinscope">']
    parts.append(f'<p><b class="{escape(report.verdict)}">{escape(headline(report))}</b></p>')
    parts.append(f'<p class="quiet">reference <code>{escape(report.reference)}</code>, candidate <code>{escape(report.candidate)}</code></p>')
    first = report.first
    if first is not None and first.causes:
        items = "".join(f"<li><b>{escape(cause.kind)}</b>: {escape(cause.text)}</li>" for cause in first.causes[:3])
        parts.append(f"<p>Cause</p><ul>{items}</ul>")
    parts.append(curve(report))
    parts.append(pair_table(report))
    for side, left in (("reference", report.only_reference), ("candidate", report.only_candidate)):
        if left:
            names = ", ".join(f"<code>{escape(one.name)}</code>" for one in left[:20])
            more = f" and {len(left) - 20} more" if len(left) > 20 else ""
            parts.append(f"<p>Only in the {side}: {names}{more}</p>")
    if report.skipped:
        items = "".join(f"<li><code>{escape(one.name)}</code>: {escape(one.reason)}</li>" for one in report.skipped[:20])
        parts.append(f"<p>Not read: {len(report.skipped)}</p><ul>{items}</ul>")
    return "".join([*parts, "</div>"])


def curve(report: Report) -> str:
    """`rel_l2` over depth on a logarithmic scale, the pairs that diverged by themselves marked."""
    values = [pair.totals.rel_l2 if pair.totals else None for pair in report.pairs]
    seen = [math.log10(value) for value in values if value and math.isfinite(value)]
    if len(seen) < 2:
        return ""
    low, high = min(seen), max(max(seen), min(seen) + 1)
    width, height = 640, 90

    def at(order: int, value: float) -> tuple[float, float]:
        y = height - 8 - (math.log10(value) - low) / (high - low) * (height - 16)
        return 8 + order / max(len(values) - 1, 1) * (width - 16), y

    points = [(order, at(order, value)) for order, value in enumerate(values) if value and math.isfinite(value)]
    line = " ".join(f"{x:.1f},{y:.1f}" for _, (x, y) in points)
    own = set(report.divergences)
    marks = "".join(
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="#c4314b"><title>{escape(report.pairs[order].name)}</title></circle>'
        for order, (x, y) in points
        if order in own
    )
    label = f"rel_l2 over depth, from 1e{low:.0f} to 1e{high:.0f}"
    return (
        f'<svg role="img" aria-label="{label}" width="{width}" height="{height}" viewBox="0 0 {width} {height}">'
        f'<polyline points="{line}" fill="none" stroke="#4a7ebb" stroke-width="1.5"/>{marks}</svg><div class="quiet">{label}</div>'
    )


def pair_table(report: Report) -> str:
    rows = "".join(pair_row(pair) for pair in shown(report))
    left = len(report.pairs) - min(len(report.pairs), MOST_ROWS)
    more = f'<p class="quiet">{left} more pairs in <code>.pairs</code></p>' if left else ""
    head = "<tr><th>pair</th><th>verdict</th><th>origin</th><th>dtypes</th><th>shape</th><th class=n>rel_l2</th><th class=n>max_abs</th><th>cause</th></tr>"
    return f"<details{' open' if len(report.pairs) <= 30 else ''}><summary>{len(report.pairs)} pairs</summary><table>{head}{rows}</table>{more}</details>"


def shown(report: Report) -> list[Pair]:
    """All of them, or those around the first divergence."""
    if len(report.pairs) <= MOST_ROWS:
        return report.pairs
    first = report.first_divergence.pair if report.first_divergence else 0
    begin = max(0, min(first - MOST_ROWS // 4, len(report.pairs) - MOST_ROWS))
    return report.pairs[begin : begin + MOST_ROWS]


def pair_row(pair: Pair) -> str:
    totals = pair.totals
    numbers = [number(totals.rel_l2), number(totals.max_abs)] if totals else ["–", "–"]
    cells = [
        f"<td><code>{escape(pair.name)}</code></td>",
        f"<td><b>{escape(pair.verdict)}</b></td>",
        f"<td>{escape(pair.origin or '')}</td>",
        f"<td>{escape(' / '.join(dict.fromkeys(pair.dtypes)))}</td>",
        f"<td>{escape(str(pair.shape) if pair.shape is not None else pair.reason or '')}</td>",
        *(f'<td class="n">{text}</td>' for text in numbers),
        f"<td>{escape(pair.causes[0].kind) if pair.causes else ''}</td>",
    ]
    return f'<tr class="{escape(pair.verdict)}">{"".join(cells)}</tr>'


def listing_lines(listing: Listing[Any]) -> list[str]:
    lines = [f"{listing.source} ({listing.format}): {len(listing.tensors)} tensors"]
    lines += [f"  {tensor.name}  {tensor.dtype} {tensor.shape}" for tensor in listing.tensors[:20]]
    if len(listing.tensors) > 20:
        lines.append(f"  and {len(listing.tensors) - 20} more")
    if listing.skipped:
        lines.append(f"  not read: {len(listing.skipped)} (see .skipped)")
    return lines


def listing(listing: Listing[Any]) -> str:
    columns = [key for key in ("mean", "std", "min", "max", "nan", "inf", "norm") if listing.tensors and hasattr(listing.tensors[0], key)]
    head = "<th>name</th><th>dtype</th><th>shape</th>" + "".join(f"<th class=n>{column}</th>" for column in columns)
    rows = "".join(
        f"<tr><td><code>{escape(tensor.name)}</code></td><td>{escape(tensor.dtype)}</td><td>{escape(str(tensor.shape))}</td>"
        + "".join(f'<td class="n">{number(getattr(tensor, column))}</td>' for column in columns)
        + "</tr>"
        for tensor in listing.tensors[:MOST_ROWS]
    )
    left = len(listing.tensors) - MOST_ROWS
    more = f'<p class="quiet">{left} more in <code>.tensors</code></p>' if left > 0 else ""
    return (
        f'<style>{STYLE}</style><div class="twinscope"><p><b>{escape(listing.source)}</b> ({escape(listing.format)}), '
        f"{len(listing.tensors)} tensors</p><table><tr>{head}</tr>{rows}</table>{more}</div>"
    )
