#!/usr/bin/env bash
# Everything about the page that needs Node: build, check, e2e. `make run` never comes here.
#   scripts/ui.sh build    sources -> crates/server/ui-dist, and the TypeScript types from the API
#   scripts/ui.sh check    types, unit tests, and that ui-dist and the types are what a rebuild gives
#   scripts/ui.sh e2e      the real binary in a real browser; TWINSCOPE_BIN chooses the binary
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD

need_node() {
  if command -v node >/dev/null && [ "$(node -p 'Number(process.versions.node.split(".")[0]) >= 20')" = true ] && command -v npm >/dev/null; then return; fi
  echo "Node 20 or newer is not here: trying Debian's" >&2
  local as_root=()
  if [ "$(id -u)" -ne 0 ]; then as_root=(sudo); fi
  if command -v apt-get >/dev/null; then
    "${as_root[@]}" apt-get update -qq >&2
    DEBIAN_FRONTEND=noninteractive "${as_root[@]}" apt-get install -y -qq --no-install-recommends nodejs npm >&2
  fi
  if ! command -v node >/dev/null || [ "$(node -p 'Number(process.versions.node.split(".")[0]) >= 20')" != true ]; then
    echo "THE PAGE IS NOT TESTED: Node 20 or newer is needed and cannot be installed here. See https://nodejs.org" >&2
    exit 1
  fi
}

packages() { # exactly what the lock file says, once per lock file
  if [ ! -f ui/node_modules/.locked ] || ! cmp -s ui/package-lock.json ui/node_modules/.locked; then
    (cd ui && npm ci --no-audit --no-fund --loglevel=error)
    cp ui/package-lock.json ui/node_modules/.locked
  fi
}

binary() {
  if [ -n "${TWINSCOPE_BIN:-}" ]; then echo "$TWINSCOPE_BIN"; return; fi
  cargo build --quiet --locked -p twinscope >&2
  echo "$root/target/debug/twinscope"
}

types() { # types FILE_OPENAPI FILE_TYPES
  "$1" serve --openapi >"$2"
  (cd ui && node_modules/.bin/openapi-typescript "$2" --output "$3" >/dev/null)
}

need_node
packages
case "${1:-}" in
  build)
    types "$(binary)" "$root/ui/src/generated/openapi.json" "$root/ui/src/generated/api.d.ts"
    (cd ui && npm run --silent build)
    ;;
  check)
    (cd ui && npm run --silent check && npm run --silent test)
    fresh=$(mktemp -d)
    trap 'rm -rf "$fresh"' EXIT
    types "$(binary)" "$fresh/openapi.json" "$fresh/api.d.ts"
    for file in openapi.json api.d.ts; do
      diff -u "ui/src/generated/$file" "$fresh/$file" >&2 || { echo "ui/src/generated/$file is stale: run make ui" >&2; exit 1; }
    done
    (cd ui && UI_DIST="$fresh/dist" npm run --silent build -- --logLevel warn)
    diff -r crates/server/ui-dist "$fresh/dist" >&2 || { echo "crates/server/ui-dist is stale: run make ui" >&2; exit 1; }
    [ "$(grep -c '"node_modules/@rolldown/binding-' ui/package-lock.json)" -eq 15 ] || { echo "ui/package-lock.json misses bundler bindings of other platforms" >&2; exit 1; }
    if grep -q '"resolved"' ui/package-lock.json; then echo "ui/package-lock.json names a registry" >&2; exit 1; fi
    ;;
  e2e)
    CHROMIUM=$(scripts/chromium.sh) TWINSCOPE_BIN=$(binary) node --test --test-concurrency=1 ui/e2e/*.test.js
    ;;
  *)
    sed -n '2,5p' "$0" >&2
    exit 2
    ;;
esac
