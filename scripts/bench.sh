#!/usr/bin/env bash
# Ratios in one run. Absolute times mean nothing on a shared machine; compare the columns of one row.
set -euo pipefail
cd "$(dirname "$0")/.."
echo "== listing, against reading just the headers (goal: within 2x, RssAnon under 50 MiB)"
cargo bench --quiet --locked -p twinscope-formats --bench listing
echo "== stats, against an AVX2 sum over the same mapped bytes with the same threads (floor 0.65 f32, 0.40 bf16; aim 0.85 / 0.60)"
cargo bench --quiet --locked -p twinscope-measure --bench stats
echo "== unpacking a tar.gz, against gzip -dc (goal: under 1)"
python3 scripts/bench_unpack.py target/release/twinscope
