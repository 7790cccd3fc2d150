"""Golden .npz files. Run it with Python 3 and numpy to write the cases again."""
import functools, pathlib, sys
import numpy as np

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
import golden
from golden import tensor

case = functools.partial(golden.case, HERE)


import io
import zipfile

A, B = np.arange(6.0).reshape(2, 3), np.asfortranarray(np.arange(6, dtype=">i2").reshape(2, 3))
listing = [tensor("a", A), tensor("b.c", B), tensor("dir/x", np.float32(1))]
arrays = {"a": A, "b.c": B, "dir/x": np.float32(1)}
case("stored", lambda path: np.savez(path, **arrays), "npz", format="npz", tensors=listing)
case("deflated", lambda path: np.savez_compressed(path, **arrays), "npz", format="npz", tensors=listing)
case("empty", lambda path: np.savez(path), "npz", tensors=[])
case("object", lambda path: np.savez(path, ok=A, obj=np.array([None, {"w": A}], dtype=object)), "npz", tensors=[tensor("obj.1.w", A), tensor("ok", A)], values=[{"name": "obj.0", "type": "none"}], findings=["odd"])


def members(**files):
    def write(path):
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, data in files["files"].items():
                archive.writestr(zipfile.ZipInfo(name), data, zipfile.ZIP_DEFLATED)
    return write


def npy(array):
    out = io.BytesIO()
    np.save(out, array)
    return out.getvalue()


case("cut_member", members(files={"a.npy": npy(A), "b.npy": npy(A)[:-1], "c.npy": b"no"}), "npz", tensors=[tensor("a", A)], skipped=["b", "c"])
case("escape", members(files={"../../evil.npy": npy(A)}), "npz", tensors=[tensor("../../evil", A)], findings=["path_escape"])
case("bomb", members(files={"zeros.npy": npy(np.zeros(1 << 21))}), "npz", "a thousand times smaller than what it holds: listed from its first bytes",
     tensors=[{"name": "zeros", "dtype": "f64", "shape": [1 << 21], "sha256": None}])
case("cut", lambda path: path.write_bytes((np.savez(path, a=A), path.read_bytes()[:-30])[1]), "npz", error="the zip directory is missing")
