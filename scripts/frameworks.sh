#!/usr/bin/env bash
# Capture in real frameworks: candle, burn and candle-transformers' BERT with MiniLM's real weights, against PyTorch where target/python has it.
#
# candle and burn have a lock file and a target folder of their own: nothing of them is compiled for the product. What cannot be fetched is
# said loudly, and only that is left out: without the crates nothing here runs, without the weights the tests of small models do.
set -euo pipefail
cd "$(dirname "$0")/.."
cargo=${CARGO:-cargo}
manifest=integrations/Cargo.toml
loudly() { echo "############ $* ############" >&2; }

"$cargo" fmt --manifest-path "$manifest" --all --check
# Of this platform alone: of the others there are hundreds.
host=$(rustc -vV | sed -n 's/^host: //p')
if ! said=$("$cargo" fetch --locked --quiet --target "$host" --manifest-path "$manifest" 2>&1); then
  echo "$said" >&2
  # Anything else (a lock file that does not fit) is a failure, not a missing network.
  grep -qiE 'failed to download|download of|failed to fetch|could not resolve|timed? ?out|network' <<< "$said" || exit 1
  loudly "candle AND burn COULD NOT BE FETCHED: the tests of capture in real frameworks DO NOT RUN"
  exit 0
fi
"$cargo" test --locked --workspace --manifest-path "$manifest" --target-dir target/integrations

if ! examples/minilm/weights.sh target/minilm; then
  loudly "MiniLM's WEIGHTS COULD NOT BE FETCHED: the tutorial and the comparison of candle with PyTorch DO NOT RUN"
  exit 0
fi
"$cargo" build --locked --quiet -p twinscope
export TWINSCOPE_BINARY="$PWD/target/debug/twinscope" PYTHONPATH="$PWD/python/src"
# Built by the tests above, with the features that they unify.
export MINILM_BINARY=target/integrations/debug/twinscope-minilm
PYTHON=${PYTHON:-target/python/bin/python} scripts/tutorial.sh > target/minilm/tutorial.txt || { cat target/minilm/tutorial.txt; exit 1; }
grep -E '^(\$|AGREE|DIVERGED|Why)' target/minilm/tutorial.txt
