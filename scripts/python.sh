#!/usr/bin/env bash
# Runs the Python tests: scripts/python.sh [pytest arguments]. Makes a virtual environment in target/python the first time.
#
# torch and JAX are installed there when they can be; when not, a loud line says so and the tests of everything else run.
# TWINSCOPE_TORCH_INDEX=URL takes torch from another index, for example one with small CPU-only builds.
set -euo pipefail
cd "$(dirname "$0")/.."
venv=target/python
CARGO=${CARGO:-cargo}

# install NAME FILE [pip arguments]: once for each content of the file; a failure leaves the environment as it was.
install() {
  local stamp="$venv/installed-$1"
  cmp -s "$2" "$stamp" && return 0
  "$venv/bin/pip" install --quiet --disable-pip-version-check -r "$2" "${@:3}" && cp "$2" "$stamp"
}

test -x "$venv/bin/python" || python3 -m venv "$venv"
install test python/requirements-test.txt
if ! install torch python/requirements-torch.txt ${TWINSCOPE_TORCH_INDEX:+--index-url "$TWINSCOPE_TORCH_INDEX"}; then
  echo "############ torch COULD NOT BE INSTALLED: the tests of real torch models DO NOT RUN; golden runs are still read ############" >&2
fi
if ! install jax python/requirements-jax.txt; then
  echo "############ JAX COULD NOT BE INSTALLED: the tests of JAX arrays DO NOT RUN ############" >&2
fi

$CARGO build --locked --quiet -p twinscope
export TWINSCOPE_BINARY="$PWD/target/debug/twinscope" PYTHONPATH="$PWD/python/src"
if [ "${1:-}" = --setup ]; then exit; fi
"$venv/bin/mypy" --config-file python/pyproject.toml python/src/twinscope
exec "$venv/bin/python" -m pytest python/tests "$@"
