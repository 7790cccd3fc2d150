"""Runs as `capture` writes them (format twinscope-run, version 1), written by hand from its description: one that was
closed, one whose process was killed in the middle of a line, and one of two ranks."""
import hashlib, json, pathlib, struct, zipfile
import numpy as np

here = pathlib.Path(__file__).parent
HEADER = 4096  # the recorder reserves 256 KiB; the length in front of it is what counts


def sha(array):
    return hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()


def write_rank(folder, records, tail=b""):
    folder.mkdir(parents=True, exist_ok=True)
    data, lines = b"", []
    for i, (fields, array) in enumerate(records):
        line = {"k": "t", "i": i, **fields}
        if array is not None:
            payload = np.ascontiguousarray(array).tobytes()
            line |= {"dtype": {"float32": "F32", "int64": "I64"}[str(array.dtype)], "shape": list(array.shape), "seg": 0, "off": [len(data), len(data) + len(payload)]}
            data += payload + b"\0" * (-len(payload) % 8)
        lines.append(json.dumps(line))
    (folder / "seg-00000.safetensors").write_bytes(struct.pack("<Q", HEADER) + b"{}".ljust(HEADER) + data)
    (folder / "index.jsonl").write_bytes("".join(line + "\n" for line in lines).encode() + tail)


def case(name, expect):
    folder = here / name
    folder.mkdir(exist_ok=True)
    (folder / "expect.json").write_text(json.dumps(expect, indent=1) + "\n")
    return folder / "input"


def listed(name, array):
    return {"name": name, "dtype": {"float32": "f32", "int64": "i64"}[str(array.dtype)], "shape": list(array.shape), "sha256": sha(array)}


x = np.arange(6, dtype=np.float32).reshape(2, 3)
ids = np.array([1, 2, 3], dtype=np.int64)
records = [
    ({"name": "embed", "role": "in", "arg": "0", "call": 0, "step": 0}, ids),
    ({"name": "embed", "role": "out", "arg": "0", "call": 0, "step": 0, "inputs": [0]}, x),
    ({"name": "layers.0", "role": "out", "arg": "0", "call": 0, "step": 0, "dtype": "F32", "shape": [2, 3], "same": 1}, None),
    ({"name": "layers.0", "role": "out", "arg": "0", "call": 1, "step": 0}, x * 2),
    ({"name": "embed", "role": "out", "arg": "0", "call": 0, "step": 1}, x + 1),
]
tensors = [listed("embed.in", ids), listed("embed", x), listed("layers.0", x), listed("layers.0@1", x * 2), listed("step-1/embed", x + 1)]

folder = case("closed", {"format": "run", "tensors": tensors})
write_rank(folder / "rank-00000", records, b'{"k":"end","n":5,"bytes":84,"dropped":0}\n')
(folder / "run.json").write_text('{"format":"twinscope-run","version":1,"run_id":"0","label":"closed","world_size":1}\n')

folder = case("killed", {"format": "run", "tensors": tensors, "why": "the last line is half written: everything before it counts"})
write_rank(folder / "rank-00000", records, b'{"k":"t","i":5,"name":"lay')

folder = case("two_ranks", {"format": "run", "tensors": [listed("rank-0/embed", x), listed("rank-1/embed", -x)]})
for rank, array in enumerate([x, -x]):
    write_rank(folder / f"rank-{rank:05}", [({"name": "embed", "role": "out", "arg": "0", "call": 0, "step": 0, "dims": "b h[tp]"}, array)])

folder = case("lost_segment", {"format": "run", "tensors": [], "skipped": ["embed"], "why": "an index line whose payload is gone"})
write_rank(folder / "rank-00000", records[1:2])
(folder / "rank-00000" / "seg-00000.safetensors").unlink()

# As people send it: the folder in an archive.
folder = case("zipped", {"format": "zip", "tensors": tensors, "why": "an archive of a run is that run: names, order and repeats"})
with zipfile.ZipFile(folder.with_suffix(".zip"), "w") as archive:
    for file in sorted((here / "closed" / "input").rglob("*")):
        if file.is_file():
            info = zipfile.ZipInfo("my_run/" + str(file.relative_to(here / "closed" / "input")))
            archive.writestr(info, file.read_bytes(), zipfile.ZIP_DEFLATED if file.suffix == ".jsonl" else zipfile.ZIP_STORED)
