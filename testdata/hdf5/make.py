"""Golden HDF5 and Keras files. Run it with Python 3 and h5py, numpy and ml_dtypes to write the cases again."""
import functools, pathlib, sys
import numpy as np

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
import golden
from golden import tensor

case = functools.partial(golden.case, HERE)


import zipfile
import h5py
import ml_dtypes

W = np.arange(24, dtype="f4").reshape(4, 6)
HALF = np.arange(3).astype(ml_dtypes.bfloat16)
ARRAYS = {"be": np.arange(3).astype(">f8"), "bool": np.array([True, False]), "c128": np.array([1 - 2j]), "c64": np.array([1 + 2j], "c8"), "contig": W,
          "empty": np.zeros((0, 3), "i4"), "f16": np.arange(3, dtype="f2"), "i8": np.arange(-2, 2, dtype="i1"), "scalar": np.float64(3), "u64": np.array([2**64 - 1], "u8")}


def everything(libver):
    def write(path):
        with h5py.File(path, "w", libver=libver, track_order=False) as f:
            for name, value in ARRAYS.items():
                f[name] = value
            f["group/sub/chunked"] = W
            f.create_dataset("gzip", data=W, chunks=(2, 3), compression="gzip", shuffle=True, fletcher32=True)
            f.create_dataset("lzf", data=np.tile(W, (8, 1)), chunks=(8, 6), compression="lzf")
            f.create_dataset("never", shape=(2, 2), dtype="f4", fillvalue=7)
            f.create_dataset("partly", shape=(3, 3), dtype="f4", chunks=(2, 2), fillvalue=-1)[0, 0] = 5
            f["hard"], f["soft"] = f["contig"], h5py.SoftLink("/group/sub/chunked")
            f["text"], f["none"] = "words", h5py.Empty("f4")
            f["fixed"] = np.array([b"ab", b"cd"])
            f["record"] = np.array([(1, 2.0)], dtype=[("a", "<i4"), ("b", "<f8")])
            f["bf16"] = HALF.view("V2")
            f["bf16"].attrs["dtype"] = "bfloat16"
    return write


partly = np.full((3, 3), -1, "f4")
partly[0, 0] = 5
listing = [tensor(n, v) for n, v in ARRAYS.items()]
listing += [tensor("bf16", HALF), tensor("fixed", np.array([b"ab", b"cd"]), "bytes16"), tensor("group/sub/chunked", W), tensor("gzip", W), tensor("hard", W),
            tensor("lzf", np.tile(W, (8, 1))), tensor("never", np.full((2, 2), 7, "f4")), tensor("partly", partly), tensor("soft", W),
            tensor("record", np.array([(1, 2.0)], dtype=[("a", "<i4"), ("b", "<f8")]), "struct", raw=True)]
listing.sort(key=lambda t: t["name"])
# Runs of digits compare as numbers.
order = {"c64": 0, "c128": 1}
listing.sort(key=lambda t: ("c", order[t["name"]]) if t["name"] in order else (t["name"], 0))
for libver in ["earliest", "latest"]:
    case(libver, everything(libver), "h5", format="hdf5", tensors=listing)


def links(path):
    with h5py.File(path, "w", libver="latest") as f:
        f["ok"] = np.arange(3, dtype="f4")
        f["out"], f["beside"] = h5py.ExternalLink("/etc/passwd", "/x"), h5py.ExternalLink("other.h5", "/x")
        f["dangling"], f["loop"] = h5py.SoftLink("/nope"), h5py.SoftLink("/loop")
        f.create_group("cycle")["up"] = f["/"]
        f.create_dataset("elsewhere", (2,), "f4", external=[("/etc/passwd", 0, 8)])


def huge(path):
    with h5py.File(path, "w", libver="latest") as f:
        f.create_dataset("huge", (1 << 20, 1 << 20), "f8", chunks=(64, 64))
        f["ok"] = np.arange(3, dtype="f4")


def many(path):
    with h5py.File(path, "w", libver="latest") as f:
        for i in range(30):
            f[f"w{i}"] = np.int32(i)


def block(path):
    with h5py.File(path, "w", userblock_size=512) as f:
        f["w"] = W
    data = path.read_bytes()
    path.write_bytes(b"any bytes at all".ljust(512) + data[512:])


def weights(path):
    with h5py.File(path, "w") as f:
        f["layers/dense/vars/0"], f["layers/dense/vars/1"] = W, np.zeros(6, "f4")


def keras(path):
    weights(path)
    data = path.read_bytes()
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in {"metadata.json": b"{}", "config.json": b"{}", "model.weights.h5": data}.items():
            archive.writestr(zipfile.ZipInfo(name), content)


def legacy(path):
    with h5py.File(path, "w") as f:
        f.attrs["model_config"] = "{}"
        f["model_weights/dense/dense/bias"], f["model_weights/dense/dense/kernel"] = np.zeros(6, "f4"), W


ok = tensor("ok", np.arange(3, dtype="f4"))
case("links", links, "h5", tensors=[ok], skipped=["out", "beside", "dangling", "loop", "cycle/up", "elsewhere"], findings=["path_escape"])
case("huge", huge, "h5", "8 TB that were never written", tensors=[{"name": "huge", "dtype": "f64", "shape": [1 << 20, 1 << 20], "sha256": None}, ok])
case("many_links", many, "h5", tensors=[tensor(f"w{i}", np.int32(i)) for i in range(30)])
case("user_block", block, "h5", tensors=[tensor("w", W)])
case("weights", weights, "h5", tensors=[tensor("layers/dense/vars/0", W), tensor("layers/dense/vars/1", np.zeros(6, "f4"))])
case("keras", keras, "keras", format="keras", tensors=[tensor("layers/dense/vars/0", W), tensor("layers/dense/vars/1", np.zeros(6, "f4"))])
case("legacy_keras", legacy, "h5", tensors=[tensor("model_weights/dense/dense/bias", np.zeros(6, "f4")), tensor("model_weights/dense/dense/kernel", W)])
case("cut", lambda path: path.write_bytes((weights(path), path.read_bytes()[:60])[1]), "h5", error="cut short")
