"""Archives of tensor files, written by tarfile, zipfile, gzip and the zstd tool; expect.json says what must be listed."""
import gzip, hashlib, io, json, os, pathlib, shutil, subprocess, tarfile, zipfile
import numpy as np
import safetensors.numpy

HERE = pathlib.Path(__file__).parent
DTYPES = {"float32": "f32", "int64": "i64", "float16": "f16", "uint8": "u8"}


def npy(array):
    out = io.BytesIO()
    np.save(out, array)
    return out.getvalue()


def array(seed, shape=(2, 3), dtype="f4"):
    return (np.arange(int(np.prod(shape))).reshape(shape) + seed).astype(dtype)


def tensor(name, a):
    return {"name": name, "dtype": DTYPES[str(a.dtype)], "shape": list(a.shape), "sha256": hashlib.sha256(a.tobytes()).hexdigest()}


def case(name, file, data, format, tensors, skipped=(), findings=()):
    folder = HERE / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    (folder / file).write_bytes(data)
    expect = {"format": format, "tensors": [tensor(*t) for t in tensors], "values": [], "skipped": list(skipped), "findings": list(findings)}
    (folder / "expect.json").write_text(json.dumps(expect, indent=1) + "\n")


def refused(name, file, data, error):
    case(name, file, data, "", [])
    (HERE / name / "expect.json").write_text(json.dumps({"error": error}) + "\n")


def tar(members, format=tarfile.USTAR_FORMAT, extra=()):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=format) as t:
        for name, data in members:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            t.addfile(info, io.BytesIO(data))
        for name, kind in extra:
            info = tarfile.TarInfo(name)
            info.type, info.linkname = kind, "elsewhere.npy"
            t.addfile(info)
    return out.getvalue()


def zipped(members, method):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as z:
        for name, data in members:
            z.writestr(zipfile.ZipInfo(name, (2026, 1, 1, 0, 0, 0)), data, method)
    return out.getvalue()


def gz(data):
    return gzip.compress(data, 6, mtime=0)


def zst(data):
    return subprocess.run(["zstd", "-q", "-c"], input=data, stdout=subprocess.PIPE, check=True).stdout


# Out of order on purpose; the listing is by layer, then stage, then name.
order = ["0_query", "0_key", "0_post_mlp", "0_zeta", "2_query", "10_query"]
layers = [(name, array(i)) for i, name in enumerate(order)]
model = {"layers.1.w": array(50), "layers.0.w": array(60), "embed.w": array(70, (4,), "f2")}
members = [(f"dump/{name}.npy", npy(a)) for name, a in reversed(layers)]
members += [("dump/README.md", b"# about"), ("dump/model.safetensors", safetensors.numpy.save(model)), ("dump/config.json", b"{}")]
listed = layers + [(f"model.{key}", model[key]) for key in ("embed.w", "layers.0.w", "layers.1.w")]

case("tar", "input.tar", tar(members), "tar", listed)
case("tar_gz", "input.tar.gz", gz(tar(members)), "tar.gz", listed)
case("tgz", "input.tgz", gz(tar(members)), "tar.gz", listed)
whole = tar(members)
case("gz_of_two_members", "input.tar.gz", gz(whole[:1500]) + gz(whole[1500:]), "tar.gz", listed)
case("gz_of_two_equal_halves", "input.tar.gz", gz(whole) + gz(whole), "tar.gz", listed)
case("tar_zst", "input.tar.zst", zst(tar(members)), "tar.zst", listed)
case("zst_of_two_frames", "input.tar.zst", zst(whole[:2000]) + zst(whole[2000:]), "tar.zst", listed)
case("zip_stored", "input.zip", zipped(members, zipfile.ZIP_STORED), "zip", listed)
case("zip_deflated", "input.zip", zipped(members, zipfile.ZIP_DEFLATED), "zip", listed)
case("npy_gz", "input.npy.gz", gz(npy(array(3))), "npy", [("input", array(3))])
case("npy_zst", "input.npy.zst", zst(npy(array(3))), "npy", [("input", array(3))])

long = "a" * 90 + "/" + "b" * 90 + "/" + "c" * 90
case("tar_pax_long_names", "input.tar", tar([(f"{long}.npy", npy(array(1))), ("x.npy", npy(array(2)))], tarfile.PAX_FORMAT), "tar",
     [(long, array(1)), ("x", array(2))])
case("tar_gnu_long_names", "input.tar", tar([(f"{long}.npy", npy(array(1))), ("x.npy", npy(array(2)))], tarfile.GNU_FORMAT), "tar",
     [(long, array(1)), ("x", array(2))])
case("tar_links", "input.tar", tar([("x.npy", npy(array(2)))], extra=[("link.npy", tarfile.SYMTYPE), ("hard.npy", tarfile.LNKTYPE)]), "tar",
     [("x", array(2))], skipped=["link.npy", "hard.npy"])
case("tar_cut", "input.tar", tar([("x.npy", npy(array(2))), ("y.npy", npy(array(3)))])[:1024 + 512 + 100], "tar",
     [("x", array(2))], skipped=["y.npy"], findings=["odd"])
case("tar_cut_between_members", "input.tar", tar([("x.npy", npy(array(2))), ("y.npy", npy(array(3)))])[:1024], "tar", [("x", array(2))], findings=["odd"])
case("tar_same_name_twice", "input.tar", tar([("x.npy", npy(array(2))), ("x.npy", npy(array(3)))]), "tar", [("x", array(3))], findings=["odd"])
case("tar_leaves_its_folder", "input.tar", tar([("../x.npy", npy(array(2))), ("/etc/y.npy", npy(array(3)))]), "tar",
     [("etc/y", array(3)), ("x", array(2))], findings=["path_escape"])
case("zip_leaves_its_folder", "input.zip", zipped([("../x.npy", npy(array(2))), ("y.npy", npy(array(3)))], zipfile.ZIP_STORED), "zip",
     [("x", array(2)), ("y", array(3))], findings=["path_escape"])
case("zip_one_bad_member", "input.zip",
     zipped([("good.npy", npy(array(2))), ("bad.npy", b"\x93NUMPY\x01\x00\xff\xff{"), ("page.pt", b"<html>404</html>")], zipfile.ZIP_DEFLATED), "zip",
     [("good", array(2))], skipped=["bad.npy", "page.pt"])
case("names_collide", "input.zip", zipped([("x.npy", npy(array(2))), ("x.npy.gz", gz(npy(array(3))))], zipfile.ZIP_STORED), "zip",
     [("x", array(2)), ("x#2", array(3))])
inner = zipped([("a/x.npy", npy(array(2))), ("a/y.npy", npy(array(4)))], zipfile.ZIP_DEFLATED)
case("zip_in_tar", "input.tar", tar([("inner.zip", inner), ("y.npy", npy(array(3)))]), "tar",
     [("inner/x", array(2)), ("inner/y", array(4)), ("y", array(3))])
case("archives_too_deep", "input.tar", tar([("a.zip", zipped([("b.zip", inner), ("x.npy", npy(array(1)))], zipfile.ZIP_STORED))]), "tar",
     [("a/x", array(1))], skipped=["a/b.zip"])
shards = [{"layers.1.w": array(5), "layers.10.w": array(6)}, {"layers.0.w": array(7), "layers.2.w": array(8)}]
case("shards_in_tar", "input.tar",
     tar([(f"m/model-0000{i + 1}-of-00002.safetensors", safetensors.numpy.save(s)) for i, s in enumerate(shards)]), "tar",
     [(f"layers.{i}.w", a) for i, a in ((0, array(7)), (1, array(5)), (2, array(8)), (10, array(6)))])
refused("zip_of_text", "input.zip", zipped([("README.md", b"hi"), ("a/notes.txt", b"x")], zipfile.ZIP_STORED), "none of the 2 files inside is a tensor file")
refused("gz_of_text", "input.gz", gz(b"hello, this is no tensor"), "plain text")
refused("gz_cut", "input.tar.gz", gz(tar(members))[:-300], "bad archive")
