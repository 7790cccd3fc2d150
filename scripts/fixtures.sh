#!/usr/bin/env bash
# Writes testdata/ anew with the real libraries. The versions are those the committed files were written with.
set -euo pipefail
cd "$(dirname "$0")/.."
python3 -m venv .venv
.venv/bin/pip install --quiet -r scripts/fixtures.txt
for script in testdata/*/make*.py; do
  echo "$script"
  .venv/bin/python "$script"
done
