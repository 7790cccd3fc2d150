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
echo "== totals of a pair, against an AVX2 sum over the same mapped bytes (floor 0.60 f32, 0.35 bf16; aim 0.80 / 0.50)"
cargo bench --quiet --locked -p twinscope-measure --bench totals
echo "== diff, from start to finished report"
# `make python` leaves one with torch there; without torch the comparison with it is left out, and said.
if [ -x target/python/bin/python ]; then python=target/python/bin/python
elif python3 -c 'import numpy' 2>/dev/null; then python=python3; else
  python3 -m venv .venv && .venv/bin/pip install --quiet -r scripts/fixtures.txt && python=.venv/bin/python
fi
"$python" scripts/bench_diff.py target/release/twinscope "${TWINSCOPE_BENCH_GIB:-2}"
echo "== the server: windows and cells of a large tensor beside a small one, memory, an upload beside curl to a bare sink, many pairs, many clients"
python3 scripts/bench_server.py target/release/twinscope "${TWINSCOPE_BENCH_SERVER_GIB:-4}"

echo "== causes: what they add to a diff (seconds with and without; goal for 91 tensors of a million values: about one)"
"$python" scripts/bench_causes.py target/release/twinscope
