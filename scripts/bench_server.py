#!/usr/bin/env python3
"""The server's costs, each beside something to compare it with: windows and cells of a large tensor and of a small one, memory, an upload beside
curl to a bare sink, ten thousand pairs, many clients at once. Standard library and curl only; needs three times the size of the upload on disk.

usage: bench_server.py BINARY [GIB [PART...]]     PART: windows, pairs, upload; all of them when none is given"""

import concurrent.futures
import http.client
import http.server
import json
import os
import pathlib
import random
import shutil
import struct
import subprocess
import sys
import tempfile
import threading
import time

BINARY = os.path.abspath(sys.argv[1])
GIB = float(sys.argv[2]) if len(sys.argv) > 2 else 4.0
PARTS = sys.argv[3:] or ["windows", "pairs", "upload"]
SMALL_MIB = 64
UPLOAD = int(float(os.environ.get("TWINSCOPE_BENCH_UPLOAD_GIB", "2")) * (1 << 30))


def safetensors(path, tensors, sparse=False):
    """Tensors of f32: (name, shape). Sparse ones are holes with a few numbers in them."""
    header, at = {}, 0
    for name, shape in tensors:
        count = 4
        for size in shape:
            count *= size
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [at, at + count]}
        at += count
    text = json.dumps(header).encode()
    with open(path, "wb") as out:
        out.write(struct.pack("<Q", len(text)) + text)
        if sparse:
            out.truncate(8 + len(text) + at)
            for place in range(0, at, max(4, at // 64 // 4 * 4)):
                out.seek(8 + len(text) + place)
                out.write(struct.pack("<f", 1.5))
        else:
            out.write(os.urandom(at // 4) * 4 if at >= 4 else b"")


class Server:
    def __init__(self, folder, state):
        arguments = [BINARY, "serve", "--port", "0", "--no-open", "--state", state]
        self.process = subprocess.Popen(arguments, cwd=folder, stdout=subprocess.PIPE, text=True)
        self.host = self.process.stdout.readline().strip().split("/")[2]

    def connection(self):
        return http.client.HTTPConnection(self.host, timeout=600)

    def call(self, method, path, body=None, connection=None):
        connection = connection or self.connection()
        headers = {"content-type": "application/json"} if body is not None else {}
        connection.request(method, path, json.dumps(body) if body is not None else None, headers)
        answer = connection.getresponse()
        data = answer.read()
        if answer.status >= 400:
            raise RuntimeError(f"{method} {path}: {answer.status} {data[:300]}")
        return data

    def open(self, reference, candidate=None, compare=None):
        body = {"reference": {"path": reference}}
        if candidate:
            body["candidate"] = {"path": candidate}
        if compare is not None:
            body["compare"] = compare
        return "/api/v1/sessions/" + json.loads(self.call("POST", "/api/v1/open", body))["session"]

    def wait(self, session):
        while True:
            document = json.loads(self.call("GET", session))
            if document["state"] not in ("queued", "running"):
                return document
            time.sleep(0.02)

    def anonymous_mib(self):
        for line in pathlib.Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith("RssAnon"):
                return int(line.split()[1]) / 1024
        return float("nan")

    def stop(self):
        self.process.terminate()
        self.process.wait()


def percentile(times, part):
    return sorted(times)[min(len(times) - 1, int(len(times) * part))] * 1000


def timed(server, paths):
    connection, times = server.connection(), []
    for path in paths:
        begun = time.perf_counter()
        server.call("GET", path, connection=connection)
        times.append(time.perf_counter() - begun)
    return times


def slices(server, session, side, count):
    """Windows and cells at random places, and the whole tensor as a picture."""
    rng = random.Random(7)
    windows, cells = [], []
    for _ in range(count):
        r, c = rng.randrange(side - 256), rng.randrange(side - 256)
        windows.append(f"{session}/pairs/0/window?r0={r}&r1={r + 256}&c0={c}&c1={c + 256}")
        cells.append(f"{session}/pairs/0/cells?r0={r}&r1={r + 20}&c0={c}&c1={c + 20}&bits=1")
    turned = [path + "&rows=1&cols=0" for path in windows[: count // 4]]
    whole = [f"{session}/pairs/0/window?height=256&width=256"] * (count // 10)
    return {name: timed(server, paths) for name, paths in [("window", windows), ("cells", cells), ("turned window", turned), ("whole tensor", whole)]}


def verdict(good):
    return "good" if good else "MISSED"


def windows(server, folder):
    sides = [("small", int((SMALL_MIB * (1 << 20) / 4) ** 0.5)), ("large", int((GIB * (1 << 30) / 4) ** 0.5))]
    sessions = {}
    for name, side in sides:
        for which in ("reference", "candidate"):
            safetensors(folder / f"{name}_{which}.safetensors", [("x", [side, side])], sparse=True)
        sessions[name] = server.open(f"{name}_reference.safetensors", f"{name}_candidate.safetensors")
        server.wait(sessions[name])
    opened = server.anonymous_mib()
    for name, side in sides:
        slices(server, sessions[name], side, 40)  # What a second look costs: the first one is the disk's.
    # In turn, so that whatever else the machine does hits both.
    found = {name: {} for name, _ in sides}
    for _ in range(4):
        for name, side in sides:
            for kind, times in slices(server, sessions[name], side, 100).items():
                found[name].setdefault(kind, []).extend(times)
    for kind in found["small"]:
        (small50, small99), (large50, large99) = ([percentile(found[name][kind], part) for part in (0.5, 0.99)] for name in ("small", "large"))
        print(
            f"{kind:14} p50 {large50:6.2f} ms, p99 {large99:6.2f} ms on {GIB:g} GiB; {small50:6.2f} and {small99:6.2f} on {SMALL_MIB} MiB: "
            f"{large50 / small50:.2f}x for {GIB * 1024 / SMALL_MIB:g}x the size (goal: p99 under 20 ms, flat) {verdict(large99 < 20 and large50 < 2 * small50)}"
        )
    print(f"anonymous memory: {opened:.0f} MiB after comparing 2 x {GIB:g} GiB, {server.anonymous_mib():.0f} MiB after looking into them (goal: under 300) {verdict(opened < 300)}")


class Sink(http.server.BaseHTTPRequestHandler):
    """Writes a body to a file and says nothing more: what an upload cannot be faster than."""

    protocol_version = "HTTP/1.1"

    def do_PUT(self):
        left = int(self.headers["content-length"])
        with open(self.server.target, "wb", buffering=0) as out:
            while left:
                piece = self.rfile.read(min(left, 1 << 20))
                if not piece:
                    break
                out.write(piece)
                left -= len(piece)
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


def curl(url, path):
    begun = time.perf_counter()
    subprocess.run(["curl", "-sS", "-f", "-o", os.devnull, "-H", "Expect:", "-H", "content-type: application/octet-stream", "-T", path, url], check=True)
    return time.perf_counter() - begun


def upload(server, folder):
    path = folder / "upload.bin"
    piece = os.urandom(1 << 20)
    with open(path, "wb") as out:
        for _ in range(UPLOAD >> 20):
            out.write(piece)
    sink = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Sink)
    sink.target = folder / "sink.bin"
    threading.Thread(target=sink.serve_forever, daemon=True).start()
    ours, bare = [], []
    for _ in range(3):
        announced = json.loads(server.call("POST", "/api/v1/uploads", {"name": "u", "files": [{"path": "u", "bytes": UPLOAD}]}))["upload"]
        ours.append(curl(f"http://{server.host}/api/v1/uploads/{announced}/files/0", path))
        server.call("DELETE", f"/api/v1/uploads/{announced}")
        bare.append(curl(f"http://127.0.0.1:{sink.server_address[1]}/", path))
        sink.target.unlink()
    sink.shutdown()
    path.unlink()
    print(f"upload of {UPLOAD / (1 << 30):g} GiB: {min(ours) / min(bare):.2f}x of curl to a bare sink (goal: within 1.5x) {verdict(min(ours) <= 1.5 * min(bare))}; {UPLOAD / min(ours) / 1e6:.0f} MB/s, memory {server.anonymous_mib():.0f} MiB")


def many_pairs(server, folder):
    names = [(f"layers.{i // 10}.part{i % 10}.weight", [16, 16]) for i in range(10_000)]
    safetensors(folder / "many.safetensors", names)
    begun = time.perf_counter()
    session = server.open("many.safetensors", "many.safetensors")
    first = None
    while first is None:
        try:
            json.loads(server.call("GET", f"{session}/pairs"))["pairs"][0]
            first = time.perf_counter() - begun
        except (RuntimeError, IndexError):
            time.sleep(0.01)
    server.wait(session)
    done = time.perf_counter() - begun
    listing = min(timed(server, [f"{session}/pairs"] * 5))
    rows = json.loads(server.call("GET", f"{session}/pairs"))["pairs"]
    print(f"{len(rows)} pairs: first rows after {first:.2f} s (goal: under 1 s) {verdict(first < 1)}, all measured after {done:.2f} s, listed again in {listing * 1000:.0f} ms")
    return session


def load(server, session):
    paths = [f"{session}/pairs/{i % 10_000}/{what}" for i in range(4000) for what in ("window", "cells")]
    failed, begun = [], time.perf_counter()

    def client(mine):
        connection = server.connection()
        for path in mine:
            try:
                server.call("GET", path, connection=connection)
            except Exception as error:  # noqa: BLE001: every kind of failure counts
                failed.append(f"{path}: {error}")

    with concurrent.futures.ThreadPoolExecutor(64) as pool:
        list(pool.map(client, [paths[nth::64] for nth in range(64)]))
    seconds = time.perf_counter() - begun
    print(f"64 clients, {len(paths)} requests: {len(failed)} failed (goal: 0) {verdict(not failed)}, {len(paths) / seconds:.0f} a second")
    if failed:
        print("\n".join(failed[:5]))
        sys.exit(1)


def main():
    folder = pathlib.Path(tempfile.mkdtemp(prefix="twinscope-bench-"))
    server = Server(folder, str(folder / "state"))
    try:
        if "windows" in PARTS:
            windows(server, folder)
        if "pairs" in PARTS:
            load(server, many_pairs(server, folder))
        if "upload" in PARTS:
            upload(server, folder)
    finally:
        server.stop()
        shutil.rmtree(folder)


main()
