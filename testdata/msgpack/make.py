"""Golden Flax checkpoints, written with msgpack the way flax.serialization does. Run it with Python 3 and msgpack, numpy and ml_dtypes to write the cases again."""
import hashlib, json, pathlib, shutil
import numpy as np

HERE = pathlib.Path(__file__).resolve().parent
DTYPES = {"float32": "f32", "float64": "f64", "float16": "f16", "bfloat16": "bf16", "int8": "i8", "int16": "i16", "int32": "i32", "int64": "i64",
          "uint8": "u8", "uint16": "u16", "uint32": "u32", "uint64": "u64", "complex64": "c64", "complex128": "c128", "longdouble": "float128",
          "clongdouble": "complex256"}


def tensor(name, array, dtype=None, raw=False):
    """What a listing says about an array; the hash is over row-major little-endian bytes."""
    array = np.asarray(array)
    flat = np.ascontiguousarray(array)
    if not raw and flat.dtype.byteorder == ">":
        flat = flat.astype(flat.dtype.newbyteorder("<"))
    dtype = dtype or DTYPES.get(array.dtype.name, array.dtype.name.replace("float8", "f8"))
    return {"name": name, "dtype": dtype, "shape": list(array.shape), "sha256": hashlib.sha256(flat.tobytes()).hexdigest()}


def case(name, write, suffix, why="", **expect):
    folder = HERE / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    write(folder / f"input.{suffix}")
    (folder / "expect.json").write_text(json.dumps({"why": why, **expect} if why else expect, indent=1, ensure_ascii=False) + "\n")


import ml_dtypes
import msgpack


def array(value, kind=1):
    value = np.asarray(value)
    return msgpack.ExtType(kind, msgpack.packb((value.shape, value.dtype.name, value.tobytes()), use_bin_type=True))


def tree(value, cut=0):
    data = msgpack.packb(value, use_bin_type=True, strict_types=True)
    return lambda path: path.write_bytes(data[:len(data) - cut])


W, H = np.arange(12, dtype=np.float32).reshape(3, 4), np.arange(4).astype(ml_dtypes.bfloat16)
case("model", tree({"params": {"dense": {"bias": array(H), "kernel": array(W)}}, "step": 7, "z": msgpack.ExtType(2, msgpack.packb((1.0, 2.0))),
                    "list": {"0": array(np.int64(5), 3), "1": None}, "name": "m", "flag": True, "rate": 0.5}), "msgpack", format="flax-msgpack",
     tensors=[tensor("list.0", np.int64(5)), tensor("params.dense.bias", H), tensor("params.dense.kernel", W)],
     values=[{"name": n, "type": t} for n, t in [("step", "int"), ("z", "complex"), ("list.1", "none"), ("name", "str"), ("flag", "bool"), ("rate", "float")]])
chunks = {"__msgpack_chunked_array__": True, "shape": {"0": 3, "1": 4}, "chunks": {"0": array(W.ravel()[:5]), "1": array(W.ravel()[5:])}}
case("chunked", tree({"w": chunks}), "msgpack", tensors=[tensor("w", W)])
case("bare", tree(array(W)), "msgpack", tensors=[tensor("input", W)])
case("bad_array", tree({"a": array(W), "b": msgpack.ExtType(1, msgpack.packb(((5,), "float32", b"1234"))), "c": msgpack.ExtType(1, msgpack.packb(((1,), "object", b"12345678")))}),
     "msgpack", tensors=[tensor("a", W)], skipped=["b", "c"])
case("cut", tree({"a": array(W), "b": array(W)}, 1), "msgpack", tensors=[tensor("a", W)], skipped=["(the rest of the file)"])
case("deep", lambda path: path.write_bytes(b"\x81\xa1a" + b"\x91" * 5000), "msgpack", error="nested deeper")
case("lying_length", lambda path: path.write_bytes(b"\xdf\xff\xff\xff\xff\xa1a"), "msgpack", error="cut short")
