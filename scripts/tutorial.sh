#!/usr/bin/env bash
# docs/tutorial-bert-nan.md: BERT in bf16 returns NaN; record it, find the first producer and its cause, prove the fix, compare with PyTorch.
# Stops at anything that is not as expected. TWINSCOPE_BINARY and MINILM_BINARY name the two programs when they are built already.
set -euo pipefail
cd "$(dirname "$0")/.."
weights=target/minilm
cargo=${CARGO:-cargo}
examples/minilm/weights.sh "$weights"
twinscope=${TWINSCOPE_BINARY:-target/release/twinscope}
minilm=${MINILM_BINARY:-target/integrations/debug/twinscope-minilm}
test -n "${TWINSCOPE_BINARY:-}" || "$cargo" build --release --locked --quiet
test -n "${MINILM_BINARY:-}" ||
  "$cargo" build --quiet --locked --manifest-path integrations/Cargo.toml --target-dir target/integrations -p twinscope-minilm

record() { "$minilm" --weights "$weights" --inputs examples/minilm/inputs.json "$@"; }
# expect CODE TEXT ARGUMENTS...: a diff ends with 1 when the runs diverge; say which end and which words are expected, and stop at anything else.
expect() {
  local code=$1 text=$2 found=0 output
  shift 2
  echo "\$ twinscope $*"
  output=$("$twinscope" "$@") || found=$?
  printf '%s\n\n' "$output"
  if [ "$found" != "$code" ]; then echo "exit code $found instead of $code" >&2; exit 1; fi
  if ! grep -qE -- "$text" <<< "$output"; then echo "not there: $text" >&2; exit 1; fi
}

record --out "$weights/f32"
record --out "$weights/bf16" --dtype bf16
expect 1 'DIVERGED at attention_mask.minimum' diff "$weights/f32" "$weights/bf16"
expect 0 'nonfinite.*beyond what bf16 holds' explain "$weights/f32" "$weights/bf16" attention_mask.minimum
expect 0 '-3.4028235e\+38' show "$weights/f32" attention_mask.minimum
expect 0 '-inf' show "$weights/bf16" attention_mask.minimum
expect 0 'nan' show "$weights/bf16" 'attention_mask[:, 0, 0, 8:14]'
record --out "$weights/bf16-fixed" --dtype bf16 --fixed
expect 0 'AGREE' diff "$weights/f32" "$weights/bf16-fixed"
record --out "$weights/f32-again"
expect 0 'identical' diff "$weights/f32" "$weights/f32-again"

# Against PyTorch, where there is one: PYTHON names an interpreter with torch and the twinscope package.
python=${PYTHON:-python3}
if "$python" -c 'import torch, twinscope' 2>/dev/null; then
  "$python" examples/minilm/torch_run.py --weights "$weights" --out "$weights/torch"
  expect 0 'AGREE' diff --all "$weights/torch" "$weights/f32"
  # A mistake of those who port BERT, planted into PyTorch's third layer: found there, by its name.
  "$python" examples/minilm/torch_run.py --weights "$weights" --out "$weights/torch-gelu" --fault gelu_tanh
  expect 1 'DIVERGED at encoder.layer.2.intermediate ' diff "$weights/f32" "$weights/torch-gelu"
  expect 0 'function.*gelu \(tanh\)' explain "$weights/f32" "$weights/torch-gelu" encoder.layer.2.intermediate
else
  echo "############ NOT SHOWN: candle against PyTorch; $python has no torch and twinscope package (PYTHON=... names another) ############" >&2
fi
