"""What the make.py of several formats share: how a golden folder is written."""
import hashlib, json, shutil
import numpy as np

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


def case(here, name, write, suffix, why="", **expect):
    """One golden folder: the input, and what a listing of it must say."""
    folder = here / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    write(folder / f"input.{suffix}")
    (folder / "expect.json").write_text(json.dumps({"why": why, **expect} if why else expect, indent=1, ensure_ascii=False) + "\n")
