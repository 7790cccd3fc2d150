#!/usr/bin/env bash
# Every fuzz target for SECONDS, FUZZ_JOBS (2) at a time, seeded with the golden files and the corpus copy: scripts/fuzz.sh [SECONDS] [TARGET ...]
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-600}; shift || true
cargo fuzz --version >/dev/null 2>&1 || cargo install cargo-fuzz --locked
targets=("$@"); [ ${#targets[@]} -gt 0 ] || mapfile -t targets < <(cd fuzz/fuzz_targets && ls *.rs | sed 's/\.rs$//')
cargo +nightly fuzz build --release >/dev/null

# Seeds: files of the target's own kind, by extension.
seeds() {
  case $1 in
    torch_zip) echo 'pt pth pt2 ptl bin tar' ;; torch_legacy|torch_tar) echo 'pt pth bin tar' ;; pickle) echo 'pkl pdparams metadata' ;;
    safetensors|npy|npz|gguf|onnx|msgpack|zip|tar) echo "$1" ;; hdf5) echo 'h5 keras' ;; gzip) echo 'gz tgz' ;; zstd) echo 'zst' ;; *) echo '' ;;
  esac
}
run() {
  local target=$1 corpus=fuzz/corpus/$1 ext
  mkdir -p "$corpus"
  for ext in $(seeds "$target"); do
    find testdata -type f -name "*.$ext" -size -32k | while read -r file; do cp -f "$file" "$corpus/$(echo "$file" | sha1sum | cut -c1-16)"; done
  done
  if cargo +nightly fuzz run --release "$target" -- -max_total_time="$seconds" -rss_limit_mb=2048 -malloc_limit_mb=512 -timeout=20 \
      -max_len=65536 -print_final_stats=1 >"fuzz/$target.log" 2>&1; then
    echo "$target: $(grep -o 'number_of_executed_units: .*' "fuzz/$target.log") without a finding"
  else
    echo "$target: FOUND SOMETHING, see fuzz/$target.log"; return 1
  fi
}
export -f run seeds; export seconds
printf '%s\n' "${targets[@]}" | xargs -P "${FUZZ_JOBS:-2}" -I{} bash -c 'run {}'
