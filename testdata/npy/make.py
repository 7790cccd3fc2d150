"""Golden .npy files: what NumPy writes, old and new, and what must be refused. Run it with Python 3 and numpy and ml_dtypes to write the cases again."""
import functools, pathlib, sys
import numpy as np

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
import golden
from golden import tensor

case = functools.partial(golden.case, HERE)


import ml_dtypes

rng = np.random.default_rng(0)


def save(array):
    return lambda path: np.save(path, array, allow_pickle=True)


def raw(text, data=b"", version=1):
    size = len(text).to_bytes(2 if version == 1 else 4, "little")
    return lambda path: path.write_bytes(b"\x93NUMPY" + bytes([version, 0]) + size + text.encode("latin1") + data)


def good(name, array, findings=(), **more):
    case(name, save(array), "npy", format="npy", tensors=[tensor("input", array, **more)], **({"findings": list(findings)} if findings else {}))


for kind in ["?", "u1", "i2", ">u2", "<i4", ">i8", "<f2", ">f4", "<f8", "<c8", ">c16"]:
    array = rng.integers(0, 100, (3, 4)).astype(kind)
    good({"?": "bool"}.get(kind, ("big_" if kind[0] == ">" else "") + kind.strip("<>")), array)
good("fortran", np.asfortranarray(rng.random((3, 4, 2))))
good("fortran_big", np.asfortranarray(rng.random((3, 4))).astype(">f4", order="F"))
good("scalar", np.float32(7))
good("empty", np.zeros((0, 3), np.float32))
good("longdouble", np.arange(3, dtype=np.longdouble), dtype="float128")
good("clongdouble", np.arange(3).astype(np.clongdouble), dtype="complex256")
good("unicode", np.array(["a\u00e9", "\U0001f600bc"]), dtype="str96")
good("unicode_big", np.array(["a\u00e9", "\U0001f600bc"]).astype(">U3"), dtype="str96")
good("bytes", np.array([b"ab", b"cde"]), dtype="bytes24")
good("void", np.array([b"abcd"], dtype="V4"), dtype="void32")
good("datetime", np.array(["2024-02-29", "1969-12-31"], dtype="M8[D]"), dtype="datetime64[D]")
good("datetime_25s", np.array([1, 2], dtype=">M8[25s]"), dtype="datetime64[25s]")
good("timedelta", np.array([1, 2], dtype="m8[ns]"), dtype="timedelta64[ns]")
good("bfloat16", np.arange(4).astype(ml_dtypes.bfloat16).view("V2"), dtype="void16")
record = np.zeros(2, dtype=np.dtype([("a", "<i4"), ("b", ">f8"), ("p", [("x", "<f4"), ("y", "u1")], (2,))], align=True))
record["a"], record["b"] = [1, 2], [0.5, 0.25]
good("record", record, dtype="struct", raw=True)
good("version3", np.zeros(1, dtype=[("\u4e2d", "<i4")]), dtype="struct", raw=True)
case("version2", raw("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 2), }", bytes(16), version=2), "npy", tensors=[tensor("input", np.zeros((2, 2), "f4"))])
case("python2", raw("{'descr': '<f4', 'fortran_order': False, 'shape': (2L, 2L), }", bytes(16)), "npy", "longs have an L", tensors=[tensor("input", np.zeros((2, 2), "f4"))])
case("trailing", lambda path: path.write_bytes(b"".join([(np.save(path, np.arange(2)), path.read_bytes())[1]] * 2)), "npy", "np.save twice on one file",
     tensors=[tensor("input", np.arange(2))], findings=["odd"])
logits = np.arange(4, dtype=np.float32)
case("object", save({"logits": logits, "step": 3}), "npy", format="npy", tensors=[tensor("logits", logits)], values=[{"name": "step", "type": "int"}],
     findings=["odd"], why="np.save of a dict: the pickle is followed, never executed")


class Evil:
    def __reduce__(self):
        return eval, ("1",)


case("object_evil", save(np.array([Evil(), logits], dtype=object)), "npy", format="npy", tensors=[tensor("1", logits)], findings=["unsafe_global", "odd"])
good("float8_e5m2", np.arange(4).astype(ml_dtypes.float8_e5m2), findings=["odd"])
case("object_in_record", raw("{'descr': [('a', '|O')], 'fortran_order': False, 'shape': (1,), }", bytes(8)), "npy", error="object array")
case("code", raw("{'descr': '<f4', 'fortran_order': False, 'shape': (__import__('os').getpid(),), }", bytes(16)), "npy", error="not a literal")
case("deep", raw("(" * 5000), "npy", error="nested deeper")
case("cut", raw("{'descr': '<f4', 'fortran_order': False, 'shape': (5,), }", bytes(16)), "npy", error="takes 20 bytes, 16 are there")
case("overflow", raw("{'descr': '<f4', 'fortran_order': False, 'shape': (4611686018427387904, 4), }", bytes(16)), "npy", error="numbers overflow")
case("header_4g", lambda path: path.write_bytes(b"\x93NUMPY\x02\x00\xff\xff\xff\xff{"), "npy", error="a header of")
case("missing_key", raw("{'descr': '<f4', 'shape': (1,), }", bytes(4)), "npy", error="`fortran_order` is missing")
