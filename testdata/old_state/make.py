"""Writes state/ and reports/ with the program of an older version: make.py BINARY

Made once, with version 0.1.0 (commit b67bb2b), and kept: newer versions must be able to read both. Running it again needs that binary.
Two uploads are compared, edited, and one edit is undone; a report is imported. Paths in the database begin with /STATE, which stands for
the state folder: the test puts the path of its copy there.
"""

import json
import math
import re
import shutil
import sqlite3
import struct
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

HERE = Path(__file__).resolve().parent
BINARY = sys.argv[1]
REPORTS = {
    "diverged": ["faultbench/reference.pth", "faultbench/q_bias_missing.pth"],
    "agree": ["faults/bf16_tp4.reference.pth", "faults/bf16_tp4.pth"],
    "alone": ["folder/mixed/input"],
    "nothing_in_common": ["folder/hf_debug/input", "folder/megatron/input"],
}


def safetensors(tensors):
    header, data = {}, b""
    for name, (shape, values) in tensors.items():
        start = len(data)
        data += struct.pack(f"<{len(values)}f", *values)
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [start, len(data)]}
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def waves(count, phase):
    return [math.sin(0.7 * i + phase) for i in range(count)]


def permuted(values, shape):
    a, b, c = shape
    return [values[(i * b + j) * c + k] for j in range(b) for i in range(a) for k in range(c)]


def sources():
    first, second, third, fourth = (waves(48, phase) for phase in (0.0, 1.0, 2.0, 3.0))
    shape = [2, 3, 8]
    reference = {"0_query": (shape, first), "1_query": (shape, second), "2_query": (shape, third), "lm_head.bias": ([48], fourth), "unused": ([3], [1.0, 2.0, 3.0])}
    candidate = {"0_query": (shape, first), "1_query": ([3, 2, 8], permuted(second, shape)), "2_query": (shape, [2 * x for x in third]), "zzz": ([48], fourth)}
    return safetensors(reference), safetensors(candidate)


def main():
    reports = HERE / "reports"
    shutil.rmtree(reports, ignore_errors=True)
    reports.mkdir()
    for name, arguments in REPORTS.items():
        done = subprocess.run([BINARY, "diff", "--json", *arguments], cwd=HERE.parent, capture_output=True)
        (reports / f"{name}.json").write_bytes(done.stdout)
    state = HERE / "state"
    shutil.rmtree(state, ignore_errors=True)
    server = subprocess.Popen([BINARY, "serve", "--no-open", "--port", "0", "--state", str(state)], cwd=HERE, stdout=subprocess.PIPE, text=True)
    try:
        address = re.match(r"http://[^/\s]+", server.stdout.readline()).group()
        fill(address)
    finally:
        server.terminate()
        server.wait()
    database = sqlite3.connect(state / "state.db")
    for session, document in database.execute("SELECT id, document FROM sessions").fetchall():
        database.execute("UPDATE sessions SET document = ? WHERE id = ?", (document.replace(str(state), "/STATE"), session))
    database.commit()
    # One file: no write-ahead log beside it.
    database.execute("PRAGMA journal_mode = DELETE")
    database.execute("VACUUM")
    database.close()
    for path in state.rglob("*"):
        assert not path.is_file() or str(HERE).encode() not in path.read_bytes(), path


def fill(address):
    def call(method, path, body=None, raw=None):
        data = raw if raw is not None else None if body is None else json.dumps(body).encode()
        headers = {"content-type": "application/octet-stream" if raw is not None else "application/json"}
        request = urllib.request.Request(f"{address}/api/v1{path}", data=data, method=method, headers=headers)
        try:
            with urllib.request.urlopen(request) as answer:
                return json.loads(answer.read() or "null")
        except urllib.error.HTTPError as error:
            raise SystemExit(f"{method} {path}: {error.read().decode()}")

    def wait(session):
        while True:
            document = call("GET", f"/sessions/{session}")
            if document["state"] not in ("queued", "running"):
                return document
            time.sleep(0.05)

    def edit(session, edit):
        call("POST", f"/sessions/{session}/edits", edit)
        return wait(session)

    uploads = []
    for name, data in zip(("reference.safetensors", "candidate.safetensors"), sources()):
        upload = call("POST", "/uploads", {"name": name, "files": [{"path": name, "bytes": len(data)}]})["upload"]
        call("PUT", f"/uploads/{upload}/files/0", raw=data)
        uploads.append(upload)
    opened = call("POST", "/open", {"reference": {"upload": uploads[0]}, "candidate": {"upload": uploads[1]}, "name": "a session of 0.1.0"})
    session = opened["session"]
    wait(session)
    call("PATCH", f"/sessions/{session}", {"notes": "queries are doubled in layer 2"})
    edit(session, {"kind": "unpair", "reference": ["lm_head.bias"], "candidate": ["zzz"]})
    edit(session, {"kind": "pair", "reference": ["lm_head.bias"], "candidate": ["zzz"]})
    edit(session, {"kind": "layout", "name": "1_query", "steps": "permute(1,0,2)"})
    keys = [row["key"] for row in call("GET", f"/sessions/{session}/pairs")["pairs"]]
    edit(session, {"kind": "order", "keys": keys[::-1]})
    edit(session, {"kind": "move", "key": keys[0], "to": 0})
    call("POST", f"/sessions/{session}/undo")
    print(json.dumps(wait(session), indent=1))
    imported = call("POST", "/import", raw=(HERE / "reports/alone.json").read_bytes())
    call("PATCH", f"/sessions/{imported['session']}", {"name": "an imported report"})


main()
