"""Writes the cases of this folder: files by gguf-py, damaged and older ones by hand, and what a reader must list.

    python testdata/gguf/make.py
"""
import hashlib
import json
import pathlib
import re
import struct

import gguf
import numpy as np

HERE = pathlib.Path(__file__).parent
rng = np.random.default_rng(3)
NAMES = {"float32": "f32", "float16": "f16", "float64": "f64", "int8": "i8", "int16": "i16", "int32": "i32", "int64": "i64"}


def natural(name):
    return [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", name)]


def case(name, data, tensors=(), skipped=(), findings=(), error=None):
    folder = HERE / name
    folder.mkdir(exist_ok=True)
    (folder / "input.gguf").write_bytes(data)
    expect = {"error": error} if error else {
        "format": "gguf",
        "tensors": [{"name": n, "dtype": d, "shape": list(s), "sha256": hashlib.sha256(b).hexdigest()}
                    for n, d, s, b in sorted(tensors, key=lambda t: natural(t[0]))],
        "values": [], "skipped": list(skipped), "findings": list(findings)}
    (folder / "expect.json").write_text(json.dumps(expect, indent=1) + "\n")


def written(name, arrays, endian=gguf.GGUFEndian.LITTLE, alignment=None, keys=()):
    """A file by gguf-py, as bytes, and its tensors as the listing has them."""
    path = HERE / "tmp.gguf"
    writer = gguf.GGUFWriter(path, "test", endianess=endian)
    if alignment:
        writer.add_custom_alignment(alignment)
    for key in keys:
        key(writer)
    tensors = []
    for key, array in arrays.items():
        kind = None
        if isinstance(array, tuple):
            array, kind = array
        shape = gguf.quants.quant_shape_from_byte_shape(array.shape, kind) if kind else array.shape
        tensors.append((key, kind.name.lower() if kind else NAMES[array.dtype.name], shape, array.tobytes()))
        writer.add_tensor(key, array.copy(), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    data = path.read_bytes()
    path.unlink()
    return data, tensors


def text(value, long="<Q"):
    value = value.encode()
    return struct.pack(long, len(value)) + value


def info(name, dims, kind, offset, long="<Q"):
    return text(name, long) + struct.pack("<I", len(dims)) + b"".join(struct.pack(long, d) for d in dims) + struct.pack("<IQ", kind, offset)


def by_hand(infos, data=b"", version=3, keys=b"", n_keys=0):
    """A little-endian file from its parts."""
    long = "<I" if version == 1 else "<Q"
    head = b"GGUF" + struct.pack("<I", version) + struct.pack(long, len(infos)) + struct.pack(long, n_keys) + keys + b"".join(infos)
    return head + bytes(-len(head) % 32) + data


plain = {
    "single": rng.normal(size=(3, 5)).astype(np.float32),
    "half": rng.normal(size=(2, 3, 4)).astype(np.float16),
    "double": rng.normal(size=7),
    "bytes": rng.integers(-128, 127, (4, 4), np.int8),
    "shorts": rng.integers(-999, 999, 5, np.int16),
    "ints": rng.integers(-999, 999, 5, np.int32),
    "longs": rng.integers(-999, 999, 5, np.int64),
}
brain = {"brain": (rng.integers(0, 256, (2, 6), np.uint8), gguf.GGMLQuantizationType.BF16)}
keys = [lambda w: w.add_string("text", "é"), lambda w: w.add_array("list", [1, 2, 3]), lambda w: w.add_array("words", ["a"] * 70),
        lambda w: w.add_float32("nan", float("nan")), lambda w: w.add_bool("yes", True)]
data, tensors = written("plain", plain | brain, keys=keys)
case("plain", data, tensors)
case("cut", data[:-24], [t for t in tensors if t[0] != "brain"], skipped=["brain"])

data, tensors = written("big", plain, endian=gguf.GGUFEndian.BIG)
case("big_endian", data, tensors)

blocks = {}
for kind in gguf.GGMLQuantizationType:
    per, size = gguf.GGML_QUANT_SIZES[kind]
    if per > 1:
        blocks[f"w.{kind.name.lower()}"] = (rng.integers(0, 256, (2, size), np.uint8), kind)
data, tensors = written("blocks", blocks)
case("every_block_type", data, tensors)

data, tensors = written("align", {"a": plain["half"], "b": plain["shorts"]}, alignment=8)
case("alignment_8", data, tensors)

a = rng.normal(size=8).astype("<f4")
case("version_1", by_hand([info("a", [4, 2], 0, 0, "<I")], a.tobytes(), version=1), [("a", "f32", (2, 4), a.tobytes())])
case("version_2", by_hand([info("a", [4, 2], 0, 0)], a.tobytes(), version=2), [("a", "f32", (2, 4), a.tobytes())])
case("no_tensors", by_hand([]))
case("one_bad_of_each_kind", by_hand(
    [info("good", [8], 0, 0), info("removed_type", [32], 4, 0), info("broken_row", [33], 2, 0), info("overflow", [2**62, 2**62], 0, 0),
     info("beyond", [8], 0, 2**40), info("wraps", [8], 0, 2**64 - 32), info("crooked", [1], 0, 3), info("inside", [8], 0, 0),
     info("good", [8], 0, 0), info("ranks", [1] * 5, 0, 0)], a.tobytes()),
    [("good", "f32", (8,), a.tobytes())],
    skipped=["removed_type", "broken_row", "overflow", "beyond", "wraps", "crooked", "inside", "good", "ranks"])
case("twice_one_key", by_hand([info("a", [8], 0, 0)], a.tobytes(), keys=2 * (text("k") + struct.pack("<IB", 7, 1)), n_keys=2),
     [("a", "f32", (8,), a.tobytes())], findings=["odd"])
case("too_many_tensors", b"GGUF" + struct.pack("<IQQ", 3, 2**60, 0), error="cut short")
case("crooked_alignment", by_hand([], keys=text("general.alignment") + struct.pack("<II", 4, 3), n_keys=1), error="general.alignment")
case("deep_array", by_hand([], keys=text("k") + struct.pack("<I", 9) + struct.pack("<IQ", 9, 1) * 1000, n_keys=1), error="bad header")
case("version_99", b"GGUF" + struct.pack("<IQQ", 99, 0, 0), error="version 99")
