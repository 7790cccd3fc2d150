"""Writes the cases of this folder: models by the onnx package, damaged ones from their bytes, and what a reader must list.

    python testdata/onnx/make.py
"""
import hashlib
import json
import pathlib
import re

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

HERE = pathlib.Path(__file__).parent
rng = np.random.default_rng(4)
NAMES = {"float32": "f32", "float16": "f16", "float64": "f64", "int8": "i8", "int16": "i16", "int32": "i32", "int64": "i64", "uint8": "u8",
         "uint16": "u16", "uint32": "u32", "uint64": "u64", "bool": "bool", "complex64": "c64", "complex128": "c128"}


def natural(name):
    return [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", name)]


def model(initializers=(), nodes=(), sparse=()):
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1])
    graph = helper.make_graph(list(nodes), "g", [x], [x], list(initializers), sparse_initializer=list(sparse))
    return helper.make_model(graph, producer_name="twinscope", ir_version=10)


def case(name, data, tensors=(), skipped=(), findings=(), error=None):
    """`tensors` are (name, dtype, shape, bytes)."""
    folder = HERE / name
    folder.mkdir(exist_ok=True)
    data = data if isinstance(data, bytes) else data.SerializeToString(deterministic=True)
    (folder / "input.onnx").write_bytes(data)
    expect = {"error": error} if error else {
        "format": "onnx",
        "tensors": [{"name": n, "dtype": d, "shape": list(s), "sha256": hashlib.sha256(b).hexdigest()}
                    for n, d, s, b in sorted(tensors, key=lambda t: natural(t[0]))],
        "values": [], "skipped": list(skipped), "findings": list(findings)}
    (folder / "expect.json").write_text(json.dumps(expect, indent=1) + "\n")


def listed(name, array):
    return name, NAMES[array.dtype.name], array.shape, array.tobytes()


arrays = {name: (rng.normal(size=(2, 3)) * 50).astype(name) for name in NAMES if name not in ("bool", "complex64", "complex128")}
arrays["bool"] = rng.integers(0, 2, (2, 3)).astype(bool)
arrays["complex64"] = (rng.normal(size=3) + 1j * rng.normal(size=3)).astype("complex64")
arrays["complex128"] = rng.normal(size=3) + 1j * rng.normal(size=3)

case("raw_data", model([numpy_helper.from_array(a, n) for n, a in arrays.items()]), [listed(n, a) for n, a in arrays.items()])


def typed(name, array):
    kind = helper.np_dtype_to_tensor_dtype(array.dtype)
    return helper.make_tensor(name, kind, array.shape, array.flatten().tolist())


case("typed_data", model([typed(n, a) for n, a in arrays.items()]), [listed(n, a) for n, a in arrays.items()])

small = []
tensors = []
for dtype, name in [(TensorProto.FLOAT8E4M3FN, "f8_e4m3fn"), (TensorProto.FLOAT8E5M2, "f8_e5m2"), (TensorProto.FLOAT8E4M3FNUZ, "f8_e4m3fnuz"),
                    (TensorProto.FLOAT8E5M2FNUZ, "f8_e5m2fnuz"), (TensorProto.BFLOAT16, "bf16"), (TensorProto.FLOAT8E8M0, "f8_e8m0fnu")]:
    raw = rng.integers(0, 128, 10 if name == "bf16" else 5, np.uint8).tobytes()
    small.append(helper.make_tensor(name, dtype, [5], raw, raw=True))
    tensors.append((name, name, (5,), raw))
for dtype, name in [(TensorProto.INT4, "onnx:int4"), (TensorProto.UINT4, "onnx:uint4"), (TensorProto.FLOAT4E2M1, "onnx:f4_e2m1fn"),
                    (TensorProto.INT2, "onnx:int2"), (TensorProto.UINT2, "onnx:uint2")]:
    raw = rng.integers(0, 16 if "4" in name else 256, 3 if "4" in name else 2, np.uint8).tobytes()
    small.append(helper.make_tensor(name[5:], dtype, [5], raw, raw=True))
    tensors.append((name[5:], name, (5,), raw))
for dtype, name in [(TensorProto.FLOAT6E2M3, "F6_E2M3"), (TensorProto.FLOAT6E3M2, "F6_E3M2")]:
    raw = rng.integers(0, 256, 3, np.uint8).tobytes() + b"\x15"
    small.append(helper.make_tensor(name.lower(), dtype, [5], raw, raw=True))
    tensors.append((name.lower(), name, (5,), raw))
typed4 = helper.make_tensor("typed_int4", TensorProto.INT4, [5], [-8, 7, 1, -1, 3])
small.append(typed4)
tensors.append(("typed_int4", "onnx:int4", (5,), bytes(v & 0xFF for v in typed4.int32_data)))
case("small_types", model(small), tensors)

# Varints one by one, as old writers have them: TensorProto with unpacked int32_data (field 5, wire type 0).
unpacked = TensorProto(data_type=TensorProto.INT32, dims=[3], name="unpacked").SerializeToString() + b"\x28\x01\x28\x02\x28\x7f"


def field(number, content):
    length = len(content)
    varint = b""
    while length > 127:
        varint, length = varint + bytes([length & 127 | 128]), length >> 7
    return bytes([number << 3 | 2]) + varint + bytes([length]) + content


case("unpacked_numbers", b"\x08\x0a" + field(7, field(5, unpacked)), [listed("unpacked", np.array([1, 2, 127], np.int32))])

c, w, v = np.arange(3), np.ones(2, np.float32), np.zeros(2, np.float32)
body = helper.make_graph([helper.make_node("Constant", [], ["c"], value=numpy_helper.from_array(w, "inner"))], "body", [], [],
                         [numpy_helper.from_array(v, "held")])
nodes = [helper.make_node("Constant", [], ["out"], name="named", value=numpy_helper.from_array(c, "value")),
         helper.make_node("Constant", [], ["only_output"], value=numpy_helper.from_array(c, "")),
         helper.make_node("Loop", ["a", "b"], ["z"], name="loop", body=body), helper.make_node("Loop", ["a", "b"], ["y"], body=body)]
sparse = helper.make_sparse_tensor(numpy_helper.from_array(w, "sparse"), numpy_helper.from_array(np.array([0, 5]), "at"), [2, 3])
strings = helper.make_tensor("strings", TensorProto.STRING, [2], [b"a", b"b"])
case("nodes_and_subgraphs", model([numpy_helper.from_array(np.float32(2.5), "scalar"), numpy_helper.from_array(np.zeros((0, 3), np.float32), "empty"),
                                   strings], nodes, [sparse]),
     [listed("named/value", c), listed("only_output", c), listed("body/inner", w), listed("body/held", v), listed("body/inner#2", w),
      listed("body/held#2", v), listed("sparse.values", w), listed("sparse.indices", np.array([0, 5])), listed("scalar", np.array(2.5, np.float32)),
      listed("empty", np.zeros((0, 3), np.float32))], skipped=["strings"])


def external(name, dims, **entries):
    tensor = TensorProto(name=name, data_type=TensorProto.FLOAT, dims=dims, data_location=TensorProto.EXTERNAL)
    for key, value in entries.items():
        tensor.external_data.add(key=key, value=str(value))
    return tensor


good = numpy_helper.from_array(w, "good")
case("bad_tensors", model([
    good, TensorProto(name="kind", data_type=99, dims=[1], raw_data=b"1"), TensorProto(name="negative", data_type=1, dims=[-4], raw_data=b""),
    TensorProto(name="overflow", data_type=1, dims=[2**62, 2**62], raw_data=b""), TensorProto(name="short", data_type=1, dims=[2], raw_data=b"1234"),
    TensorProto(name="no_data", data_type=1, dims=[2]), good, external("no_location", [1])]), [listed("good", w)],
    skipped=["kind", "negative", "overflow", "short", "no_data", "good", "no_location"])
case("escapes", model([good, external("up", [1], location="../secret"), external("absolute", [1], location="/etc/hostname"),
                       external("windows", [1], location="..\\secret"), external("gone", [1], location="gone.bin")]), [listed("good", w)],
     skipped=["up", "absolute", "windows", "gone"], findings=["path_escape"] * 3)
case("no_graph", b"\x08\x0a", error="no graph")
case("overlong_number", b"\x08" + b"\xff" * 12, error="longer than ten bytes")
case("empty", b"", error="an empty file")
