#!/usr/bin/env python3
"""Copy the small files of a corpus to testdata/corpus: corpus_subset.py CORPUS_DIR

`expected.json` keeps what `crates/cli/tests/corpus.rs` checks. Files of 20 kB and more stay behind; `make corpus`
checks a whole corpus where it lies.
"""
import json, pathlib, shutil, sys

LIMIT = 20_000
source, target = pathlib.Path(sys.argv[1]), pathlib.Path(__file__).parent.parent / "testdata" / "corpus"
KEEP = ["format", "error", "also_ok", "may_accept", "may_accept_with_warning", "any_outcome", "hostile", "optional", "error_ok", "directory",
        "user_supplied", "tensor_count", "marker"]
TENSOR = ["name", "dtype", "shape", "sha256", "dense_sha256", "lazy_only", "no_data"]

def trim(tensor):
    return {key: tensor[key] for key in TENSOR if key in tensor}

files = {}
shutil.rmtree(target, ignore_errors=True)
for name, entry in json.load(open(source / "expected.json"))["files"].items():
    path = source / name
    size = sum(p.stat().st_size for p in path.rglob("*") if p.is_file()) if path.is_dir() else path.stat().st_size
    if size >= LIMIT:
        continue
    kept = {key: entry[key] for key in KEEP if key in entry}
    for key in ("tensors", "salvage", "extra_tensors"):
        if key in entry:
            kept[key] = [trim(tensor) if isinstance(tensor, dict) else tensor for tensor in entry[key]]
    files[name] = kept
# Also what listed files need beside them: external data, shards.
for path in source.rglob("*"):
    name = path.relative_to(source)
    if path.is_file() and path.stat().st_size < LIMIT and len(name.parts) > 1:
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target / name)
with open(target / "expected.json", "w") as out:
    out.write('{"files": {\n')
    out.write(",\n".join(f"{json.dumps(name)}: {json.dumps(entry)}" for name, entry in sorted(files.items())))
    out.write("\n}}\n")
print(len(files), "entries")
