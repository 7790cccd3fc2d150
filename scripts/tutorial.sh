#!/usr/bin/env bash
# docs/tutorial-bert-nan.md: BERT in bf16 returns NaN; record it, find the first producer, prove the fix.
set -euo pipefail
cd "$(dirname "$0")/.."
weights=target/minilm
cargo=${CARGO:-cargo}
examples/minilm/weights.sh "$weights"
"$cargo" build --release --locked --quiet
"$cargo" build --quiet --locked --manifest-path integrations/Cargo.toml --target-dir target/integrations -p twinscope-minilm
twinscope=target/release/twinscope

record() { target/integrations/debug/twinscope-minilm --weights "$weights" --inputs examples/minilm/inputs.json "$@"; }
# A diff ends with 1 when the runs diverge: say what is expected, and stop at anything else.
expect() {
  local expected=$1 found=0
  shift
  echo "\$ twinscope $*"
  "$twinscope" "$@" || found=$?
  if [ "$found" != "$expected" ]; then echo "exit code $found instead of $expected" >&2; exit 1; fi
  echo
}

record --out "$weights/f32"
record --out "$weights/bf16" --dtype bf16
expect 1 diff "$weights/f32" "$weights/bf16"
expect 0 show "$weights/f32" attention_mask.minimum
expect 0 show "$weights/bf16" attention_mask.minimum
expect 0 show "$weights/bf16" 'attention_mask[:, 0, 0, 8:14]'
record --out "$weights/bf16-fixed" --dtype bf16 --fixed
expect 0 diff "$weights/f32" "$weights/bf16-fixed"

# Against PyTorch, where there is one: PYTHON names an interpreter with torch and the twinscope package.
python=${PYTHON:-python3}
if "$python" -c 'import torch, twinscope' 2>/dev/null; then
  "$python" examples/minilm/torch_run.py --weights "$weights" --out "$weights/torch"
  expect 0 diff "$weights/torch" "$weights/f32"
else
  echo "NOT SHOWN: candle against PyTorch; $python has no torch and twinscope package (PYTHON=... names another)" >&2
fi
