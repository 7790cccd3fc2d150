#!/usr/bin/env bash
# Prints the path of a Chromium for the browser tests; installs Debian's when there is none.
set -euo pipefail
find_one() {
  local name
  for name in "${CHROMIUM:-}" chromium chromium-browser google-chrome google-chrome-stable; do
    if [ -n "$name" ] && command -v "$name" >/dev/null; then command -v "$name"; return 0; fi
  done
  return 1
}
if find_one; then exit 0; fi
echo "no Chromium found: installing Debian's" >&2
as_root=()
if [ "$(id -u)" -ne 0 ]; then as_root=(sudo); fi
if ! command -v apt-get >/dev/null; then
  echo "this is not Debian: install Chromium and set CHROMIUM to its path" >&2
  exit 1
fi
"${as_root[@]}" apt-get update -qq >&2
DEBIAN_FRONTEND=noninteractive "${as_root[@]}" apt-get install -y -qq --no-install-recommends chromium >&2
find_one
