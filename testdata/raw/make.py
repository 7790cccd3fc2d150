"""Raw bytes with a sidecar. Run it with Python 3 and numpy to write the cases again."""
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


def blob(sidecar, data, name="input.json"):
    def write(path):
        path.write_bytes(data)
        (path.parent / name).write_text(json.dumps(sidecar))
    return write


A = np.arange(12, dtype="<f4").reshape(3, 4)
case("sidecar", blob({"dtype": "float32", "shape": [3, 4], "offset": 8, "byteorder": "little", "order": "C"}, bytes(8) + A.tobytes()), "bin",
     format="raw", tensors=[tensor("input", A)])
case("fortran_big", blob({"dtype": "f32", "shape": [3, 4], "byteorder": "big", "order": "F"}, A.astype(">f4").tobytes(order="F")), "bin", tensors=[tensor("input", A)])
case("open_size", blob({"dtype": "float32", "shape": [-1, 4]}, A.tobytes()), "bin", tensors=[tensor("input", A)])
case("cut", blob({"dtype": "float32", "shape": [4, 4]}, A.tobytes()), "bin", error="takes 64 bytes, 48 follow")
