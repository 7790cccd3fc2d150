#!/usr/bin/env python3
"""Runs two twinscope binaries on the same inputs and compares stdout byte for byte, and the exit code.

    scripts/same.py OLD NEW

Proves that a refactoring changes nothing, to the last digit and character of the JSON. The frozen test
(crates/cli/tests/frozen) needs no old binary, but keeps only some fields and 6 digits.

Exits 0 when all cases are the same, 1 when any differs, 2 when a binary is missing.
"""

import argparse
import concurrent.futures
import json
import os
import pathlib
import subprocess
import sys
import tempfile

TESTDATA = pathlib.Path(__file__).resolve().parent.parent / "testdata"
SHOWN = 8  # differences printed for each case


def run(binary, args, cwd):
    """Exit code and stdout. Errors go to stderr, whose wording may change."""
    with tempfile.TemporaryDirectory() as cache:
        command = [binary, *args, "--cache-dir", cache]
        done = subprocess.run(command, cwd=cwd, stdin=subprocess.DEVNULL, capture_output=True)
    return done.returncode, done.stdout


def recorded(folder):
    """Every case of a fault bench, and why its first divergence differs."""
    for name, case in sorted(json.loads((TESTDATA / folder / "expected.json").read_text()).items()):
        pair = [f"{folder}/{case['reference']}", f"{folder}/{case['candidate']}"]
        yield f"{folder} {name}", ["diff", *pair, "--json"], TESTDATA
        if case["first"]:
            yield f"{folder} {name}, explain", ["explain", *pair, case["first"], "--json"], TESTDATA


def options():
    """Settings that take other paths through the core."""
    reference = "faultbench/reference.pth"
    some = ["norm_eps", "rope_theta", "q_bias_missing", "tp4_f32", "f32_vs_bf16", "kv_swapped"]
    flags = {
        "rtol": ["--rtol", "1e-3"],
        "rtol and atol": ["--rtol", "1e-4", "--atol", "1e-3"],
        "noise": ["--noise", "faultbench/tp2_f32.pth"],
        "no causes": ["--no-causes"],
        "one thread": ["--threads", "1"],
        "only": ["--only", "1_*"],
        "skip": ["--skip", "*_query*"],
        "by values": ["--match", "values"],
        "by shape": ["--match", "shape"],
    }
    for name in some:
        for flag, args in flags.items():
            yield f"{flag}, {name}", ["diff", reference, f"faultbench/{name}.pth", "--json", *args], TESTDATA
    for source in [reference, "faults/bf16_tp4.pth", "folder/ranks/input", "corpus/pt/state_dict.pt", "torch/dtypes/input.pt"]:
        yield f"alone, {source}", ["diff", source, "--json"], TESTDATA


def corpus():
    """Each file of the corpus against the next one of its folder, and ranks against a rank."""
    files = json.loads((TESTDATA / "corpus" / "expected.json").read_text())["files"]
    groups = {}
    for path in sorted(files):
        if not path.startswith("hostile") and (TESTDATA / "corpus" / path).exists():
            groups.setdefault(path.split("/")[0], []).append(f"corpus/{path}")
    pairs = [pair for group in groups.values() for pair in zip(group, group[1:])]
    pairs += [
        ("folder/ranks/input", "folder/ranks/input/rank0"),
        ("folder/megatron/input", "folder/megatron/input/iter_0000100/mp_rank_00/model_optim_rng.pt"),
        ("run/two_ranks/input", "run/two_ranks/input/rank-00000/seg-00000.safetensors"),
        ("run/python_ranks/input", "run/python_ranks/input/rank-00001/seg-00000.safetensors"),
        ("torch/zero_2/input", "torch/zero_3/input"),
    ]
    for reference, candidate in pairs:
        yield f"{reference} {candidate}", ["diff", reference, candidate, "--json"], TESTDATA


def demo(old, folder):
    """Every demo fault, written once by OLD: each in its models in turn, with its own seed, every fourth with weights."""
    listed = subprocess.run([old, "demo", "--list", "--json"], capture_output=True, check=True)
    batch = []
    for at, fault in enumerate(json.loads(listed.stdout)["faults"]):
        name, model = fault["name"], fault["models"][at % len(fault["models"])]
        write = [old, "demo", "--fault", name, "--model", model, "--seed", str(at), "--out", name]
        full = ["--record", "full"]
        dtype = ["--dtype", ["f32", "bf16", "f16"][at % 3]]
        # Some faults exist only in weights or in one dtype: try less and less special runs.
        attempts = ([] if at % 4 == 0 else [dtype]) + [full + dtype, full]
        if not any(subprocess.run(write + more, cwd=folder, capture_output=True).returncode == 0 for more in attempts):
            sys.exit(f"same: `demo --fault {name}` of {old} writes no run")
        pair = [f"{name}/reference", f"{name}/candidate"]
        batch.append(json.dumps({"reference": pair[0], "candidate": pair[1], "name": name}))
        yield f"demo {name}", ["diff", *pair, "--json"], folder
    for fault, ranks, model in [("tp_shards", 1, "llama"), ("tp_shards", 2, "llama"), ("tp_order", 4, "gpt2"), ("kv_swapped", 4, "llama")]:
        name = f"{fault}_{ranks}_{model}"
        write = [old, "demo", "--fault", fault, "--model", model, "--tp", str(ranks), "--out", name]
        subprocess.run(write, cwd=folder, capture_output=True, check=True)
        yield f"demo {name}", ["diff", f"{name}/reference", f"{name}/candidate", "--json"], folder
        yield f"demo {name}, the other way", ["diff", f"{name}/candidate", f"{name}/reference", "--json"], folder
    (pathlib.Path(folder) / "batch.jsonl").write_text("\n".join(batch[:10]))
    yield "batch", ["diff", "--batch", "batch.jsonl", "--json"], folder


def changes(old, new, path=""):
    """Where two JSON values differ: (path, old, new)."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key in [*old, *(key for key in new if key not in old)]:
            yield from changes(old.get(key, "(absent)"), new.get(key, "(absent)"), f"{path}.{key}")
        if list(old) != list(new) and set(old) == set(new):
            yield f"{path} (order of keys)", list(old), list(new)
    elif isinstance(old, list) and isinstance(new, list):
        if len(old) != len(new):
            yield f"{path} (length)", len(old), len(new)
        for at, (one, other) in enumerate(zip(old, new)):
            name = one.get("name") if isinstance(one, dict) else None
            yield from changes(one, other, f"{path}[{name or at}]")
    elif old != new or type(old) is not type(new):
        yield path, old, new


def short(value):
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 120 else text[:117] + "..."


def difference(old, new):
    """Lines that say how two results differ; none when they are the same."""
    lines = []
    if old[0] != new[0]:
        lines.append(f"exit code: {old[0]} -> {new[0]}")
    if old[1] != new[1]:
        try:
            found = list(changes(json.loads(old[1]), json.loads(new[1])))
        except ValueError:
            found = [("stdout, not JSON on both sides", old[1].decode(errors="replace"), new[1].decode(errors="replace"))]
        lines += [f"{path.lstrip('.')}: {short(one)} -> {short(other)}" for path, one, other in found[:SHOWN]]
        if len(found) > SHOWN:
            lines.append(f"... and {len(found) - SHOWN} more")
        if not found:
            lines.append("the same JSON, written differently (white space or digits)")
    return lines


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("old")
    parser.add_argument("new")
    args = parser.parse_args()
    old, new = (os.path.abspath(binary) for binary in (args.old, args.new))
    for binary in (old, new):
        if not os.access(binary, os.X_OK):
            print(f"same: `{binary}` is not a program", file=sys.stderr)
            return 2
    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        cases = [*recorded("faultbench"), *recorded("faults"), *options(), *corpus(), *demo(old, folder)]
        results = pool.map(lambda case: [run(binary, *case[1:]) for binary in (old, new)], cases)
        differing, answers = 0, 0
        for (name, command, _), (one, other) in zip(cases, results):
            answers += bool(one[1])
            lines = difference(one, other)
            if lines:
                differing += 1
                print(f"{name}   ({' '.join(command)})")
                print("".join(f"  {line}\n" for line in lines), end="", flush=True)
    print(f"{differing} of {len(cases)} cases differ ({answers} of them print a document)")
    if answers < len(cases):
        print("same: the old binary failed on some case, so nothing was compared there", file=sys.stderr)
        return 1
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
