#!/usr/bin/env bash
# What recording costs, as ratios: taps without a recorder, and writing a run against writing the same bytes.
set -euo pipefail
cd "$(dirname "$0")/.."
cargo bench --quiet --locked -p twinscope-capture --bench capture
