"""Golden Flax checkpoints, written with msgpack the way flax.serialization does. Run it with Python 3 and msgpack, numpy and ml_dtypes to write the cases again."""
import functools, pathlib, sys
import numpy as np

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
import golden
from golden import tensor

case = functools.partial(golden.case, HERE)


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
