"""Golden torch files: what torch writes, in every container, and what must be refused. Run it with Python 3, torch, numpy and ml_dtypes to write the cases again."""
import collections, hashlib, io, json, os, pathlib, pickle, shutil, struct, zipfile
import ml_dtypes
import numpy as np
import torch

HERE = pathlib.Path(__file__).resolve().parent
NAMES = {"float32": "f32", "float64": "f64", "float16": "f16", "bfloat16": "bf16", "int8": "i8", "int16": "i16", "int32": "i32", "int64": "i64",
         "uint8": "u8", "uint16": "u16", "uint32": "u32", "uint64": "u64", "complex32": "c32", "complex64": "c64", "complex128": "c128"}


def tensor(name, value):
    """What a listing says about a tensor; the hash is over row-major little-endian bytes."""
    if isinstance(value, np.ndarray) or isinstance(value, np.generic):
        value = np.asarray(value)
        flat = np.ascontiguousarray(value)
        flat = flat.astype(flat.dtype.newbyteorder("<"))
        return {"name": name, "dtype": NAMES.get(value.dtype.name, value.dtype.name), "shape": list(value.shape), "sha256": hashlib.sha256(flat.tobytes()).hexdigest()}
    dtype = str(value.dtype).removeprefix("torch.")
    if value.layout != torch.strided:
        value = value.to_dense()
    codes = value.detach()
    codes = codes.int_repr() if codes.is_quantized else codes
    codes = codes.resolve_conj().resolve_neg().contiguous()
    raw = bytes(codes.view(-1).view(torch.uint8).numpy()) if codes.numel() else b""
    return {"name": name, "dtype": NAMES.get(dtype, dtype.replace("float8", "f8").replace("float4", "f4")), "shape": list(value.shape), "sha256": hashlib.sha256(raw).hexdigest()}


def case(name, data, suffix="pt", why="", **expect):
    folder = HERE / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    (folder / f"input.{suffix}").write_bytes(data)
    (folder / "expect.json").write_text(json.dumps({"why": why, **expect} if why else expect, indent=1, ensure_ascii=False) + "\n")


def saved(value, **options):
    out = io.BytesIO()
    torch.save(value, out, **options)
    return out.getvalue()


def tensors(pairs):
    return [tensor(name, value) for name, value in pairs]


def record(data, edit):
    """The same archive with its records changed: `edit` maps a dict of names to bytes to another."""
    source = zipfile.ZipFile(io.BytesIO(data))
    records = edit({info.filename: source.read(info) for info in source.infolist()})
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as target:
        for name, body in records.items():
            target.writestr(zipfile.ZipInfo(name), body)
    return out.getvalue()


def with_pickle(data, pickled, **records):
    return record(data, lambda all: {**all, "archive/data.pkl": pickled, **records})


torch.manual_seed(0)
w, b = torch.randn(3, 4), torch.arange(4)
base = torch.arange(24, dtype=torch.float32)

# Containers
state = collections.OrderedDict(fc=collections.OrderedDict(weight=w, bias=b))
listed = [("fc.weight", w), ("fc.bias", b)]
case("zip", saved(state), format="torch-zip", tensors=tensors(listed))
case("legacy", saved(state, _use_new_zipfile_serialization=False), format="torch-legacy", tensors=tensors(listed))
for protocol in (3, 4, 5):
    case(f"zip_protocol_{protocol}", saved(state, pickle_protocol=protocol), format="torch-zip", tensors=tensors(listed))
case("bare_tensor", saved(w), format="torch-zip", tensors=tensors([("input", w)]))
deflated = io.BytesIO()
with zipfile.ZipFile(deflated, "w", zipfile.ZIP_DEFLATED) as target:
    source = zipfile.ZipFile(io.BytesIO(saved(state)))
    for info in source.infolist():
        target.writestr(info.filename, source.read(info))
case("zip_deflated", deflated.getvalue(), format="torch-zip", tensors=tensors(listed), why="re-zipped by another tool")
case("zip_after_a_script", b"#!/bin/sh\nexit\n" + saved(state), format="torch-zip", tensors=tensors(listed))
case("plain_pickle_of_tensors", pickle.dumps({"w": w, "n": np.arange(3)}, protocol=2), "pkl", format="pickle", tensors=tensors([("w", w), ("n", np.arange(3))]),
     why="each storage is a legacy file inside the pickle")
for protocol in (0, 1, 2, 3, 4, 5):
    arrays = {"f": np.arange(6, dtype=np.float32).reshape(2, 3), "fortran": np.asfortranarray(np.arange(6.0).reshape(2, 3)), "big": np.arange(3, dtype=">i4"),
              "high": np.arange(250, 256, dtype=np.uint8), "scalar": np.float64(2.5), "empty": np.zeros((0, 2), np.int16)}
    case(f"plain_numpy_protocol_{protocol}", pickle.dumps(arrays, protocol=protocol), "pkl", format="pickle", tensors=tensors(arrays.items()))

# Tensors of every kind
views = {"t": base.view(4, 6).t(), "step": base[1::3], "expand": base[:1].expand(1000), "offset": base[20:], "overlap": base.as_strided((3, 3), (1, 1)),
         "scalar": torch.tensor(3), "empty": torch.zeros(0, 5)}
case("views", saved(views), format="torch-zip", tensors=tensors(views.items()))
dtypes = {str(d).removeprefix("torch."): torch.ones(2, dtype=torch.float32).to(d) for d in
          (torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64,
           torch.complex128, torch.float8_e4m3fn, torch.float8_e5m2, torch.uint16, torch.uint32, torch.uint64)}
case("dtypes", saved(dtypes), format="torch-zip", tensors=tensors(dtypes.items()))
lazy = {"conj": torch.tensor([1 + 2j, 3 - 4j]).conj(), "neg": torch.tensor([1 + 2j, 3 - 4j]).conj().imag}
case("lazy_bits", saved(lazy), format="torch-zip", tensors=tensors(lazy.items()))
parameters = {"p": torch.nn.Parameter(w), "b": torch.nn.Buffer(b)}
case("parameters", saved(parameters), format="torch-zip", tensors=tensors(parameters.items()))
quantized = {"tensor": torch.quantize_per_tensor(w, 0.1, 3, torch.quint8), "channel": torch.quantize_per_channel(w, torch.rand(3) + 0.1, torch.zeros(3), 0, torch.qint8)}
case("quantized", saved(quantized), format="torch-zip", tensors=tensors(quantized.items()))
dense = torch.tensor([[0, 1, 0, 0], [0, 0, 0, 0], [3, 4, 0, 0], [0, 0, 0, 2.0]])
sparse = {"coo": dense.to_sparse(), "twice": torch.sparse_coo_tensor([[0, 0], [1, 1]], torch.tensor([1.0, 2.0]), (2, 2)), "csr": dense.to_sparse_csr(),
          "csc": dense.to_sparse_csc(), "bsr": dense.to_sparse_bsr((2, 2)), "bsc": dense.to_sparse_bsc((2, 2)),
          "hybrid": torch.sparse_coo_tensor([[0, 2]], torch.ones(2, 3), (4, 3)), "empty": torch.sparse_coo_tensor(size=(2, 3))}
batch = torch.arange(1.0, 49).reshape(2, 4, 6)
batched = {"csr": batch.to_sparse_csr(), "csc": batch.to_sparse_csc(), "bsr": batch.to_sparse_bsr((2, 3)), "bsc": batch.to_sparse_bsc((2, 3)),
           "csr_hybrid": batch.to_sparse_csr(dense_dim=1), "bsr_hybrid": batch.to_sparse_bsr((1, 2), dense_dim=1)}
case("sparse_batched", saved(batched), format="torch-zip", tensors=tensors(batched.items()))
noted = w.clone().as_subclass(torch.Tensor)
noted.scale = torch.ones(2)
case("tensor_with_attributes", saved({"w": noted}), format="torch-zip", tensors=tensors([("w", w), ("w.scale", torch.ones(2))]))
permuted = {"permuted": np.arange(24).reshape(2, 3, 4).transpose(2, 0, 1), "bf16": np.arange(3).astype(ml_dtypes.bfloat16)}
case("numpy_permuted_protocol_5", pickle.dumps(permuted, protocol=5), "pkl", format="pickle", tensors=tensors(permuted.items()),
     why="NumPy 2 writes the order K: row-major, then its axes permuted")
case("sparse", saved(sparse), format="torch-zip", tensors=tensors(sparse.items()), why="shown whole; entries of one index are added")
parts = [torch.arange(6.0).view(2, 3), torch.arange(12.0).view(4, 3)]
nested = [(f"n.{i}", part) for i, part in enumerate(parts)]
case("nested_strided", saved({"n": torch.nested.nested_tensor(parts)}), format="torch-zip", tensors=tensors(nested))
case("nested_jagged", saved({"n": torch.nested.nested_tensor(parts, layout=torch.jagged)}), format="torch-zip", tensors=tensors(nested))
tied = {"embed": w, "head": w, "row": w[1]}
case("tied", saved(tied), format="torch-zip", tensors=tensors(tied.items()))

# Names and values
mixed = {"list": [w, {"k": b}], 5: torch.tensor(5), (1, 2): torch.tensor(12), "a.b": torch.tensor(1), "a": {"b": torch.tensor(2)}, "none": None, "flag": True, "n": 2**70, "x": 1.5,
         "s": "text", "size": torch.Size([1, 2]), "dtype": torch.bfloat16, "bytes": b"\x00\xff", "z": 1 + 2j}
case("names_and_values", saved(mixed), format="torch-zip",
     tensors=tensors([("list.0", w), ("list.1.k", b), ("5", torch.tensor(5)), ("(1, 2)", torch.tensor(12)), ("a.b", torch.tensor(1)), ("a.b#2", torch.tensor(2))]),
     values=[{"name": n, "type": t} for n, t in [("none", "none"), ("flag", "bool"), ("n", "int"), ("x", "float"), ("s", "str"), ("size", "torch.Size"), ("dtype", "torch.dtype"),
                                                 ("bytes", "bytes"), ("z", "complex")]])
module = torch.nn.Sequential(torch.nn.Linear(2, 1))
case("whole_module", saved(module), format="torch-zip", tensors=tensors([("_modules.0._parameters.weight", module[0].weight), ("_modules.0._parameters.bias", module[0].bias)]),
     findings=["opaque_object", "opaque_object"])
cycle = {"w": w}
cycle["self"] = cycle
case("cycle", saved(cycle), format="torch-zip", tensors=tensors([("w", w)]))


class Evil:
    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


# Attacks: named, never made; what can be read is still listed
case("evil_beside_a_tensor", saved({"w": w, "evil": Evil(exec, "1")}), format="torch-zip", tensors=tensors([("w", w)]), findings=["unsafe_global"])
pickled = zipfile.ZipFile(io.BytesIO(saved({"w": w}))).read("archive/data.pkl")
case("evil_popped", with_pickle(saved({"w": w}), pickled[:2] + b"cos\nsystem\nX\x02\x00\x00\x00id\x85R0" + pickled[2:]), format="torch-zip", tensors=tensors([("w", w)]),
     findings=["unsafe_global"], why="the result of the call is thrown away, CPython would have made it")
case("evil_plain", b"cos\nsystem\n(S'id'\ntR.", "pkl", format="pickle", findings=["unsafe_global"])
case("evil_getattr_chain", pickle.dumps(Evil(getattr, Evil(__import__, "os"), "system")), "pkl", format="pickle", findings=["unsafe_global", "unsafe_global"])
case("evil_then_garbage", b"cos\nsystem\n(S'id'\ntR\xff", "pkl", format="pickle", skipped=["the rest"], findings=["unsafe_global"])

# Damage: one bad tensor never hides the others
good = saved({"w": w, "b": b})
case("record_missing", record(good, lambda all: {k: v for k, v in all.items() if k != "archive/data/0"}), format="torch-zip", tensors=tensors([("b", b)]), skipped=["w"])
case("record_too_short", record(good, lambda all: {**all, "archive/data/0": all["archive/data/0"][:-1]}), format="torch-zip", tensors=tensors([("b", b)]), skipped=["w"])
case("pickle_cut", with_pickle(good, pickled[:40]), error="cut short")
case("zip_cut", good[:-10], error="cut short")
case("byte_order_unknown", record(good, lambda all: {**all, "archive/byteorder": b"middle"}), error="byte order")
swapped = saved({"w": w})
case("big_endian", record(swapped, lambda all: {**all, "archive/byteorder": b"big", "archive/data/0": np.frombuffer(all["archive/data/0"], "<f4").astype(">f4").tobytes()}),
     format="torch-zip", tensors=tensors([("w", w)]))
legacy = saved({"w": w}, _use_new_zipfile_serialization=False)
case("legacy_cut", legacy[:-4], format="torch-legacy", skipped=["w"])
case("legacy_count_lies", legacy[:-56] + struct.pack("<q", 99) + legacy[-48:], format="torch-legacy", skipped=["w"])
case("deep_lists", b"]" * 9000 + b"a" * 8999 + b".", "pkl", format="pickle", why="recursion anywhere would overflow")


# Folders
def folder_case(name, write, why="", **expect):
    folder = HERE / name
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "input").mkdir(parents=True)
    write(folder / "input")
    (folder / "expect.json").write_text(json.dumps({"why": why, **expect} if why else expect, indent=1, ensure_ascii=False) + "\n")


import subprocess, warnings
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint._extension import StreamTransformExtension

warnings.simplefilter("ignore")


class Zstd(StreamTransformExtension):
    """What torch's own ZStandard writes, through the zstd program."""

    @staticmethod
    def registry_name():
        return "stream.zstd"

    @staticmethod
    def from_descriptor(version):
        return Zstd()

    def get_descriptor(self):
        return "stream.zstd/1"

    def transform_to(self, output):
        class Stream(io.BytesIO):
            def close(self):
                if not self.closed:
                    output.write(subprocess.run(["zstd", "-c"], input=self.getvalue(), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True).stdout)
                super().close()

            def flush(self):
                pass

        return Stream()

    def transform_from(self, stream):
        raise NotImplementedError


checkpoint = {"model": {"w": w, "t": base.view(4, 6).t(), "b": b}, "step": 7, "empty": torch.zeros(0, 3)}
whole = [("model.w", w), ("model.t", base.view(4, 6).t()), ("model.b", b), ("empty", torch.zeros(0, 3))]


def save_dcp(folder, **options):
    os.chdir(folder.parent)  # The folder's path is written into `.metadata`.
    dcp.save(checkpoint, storage_writer=dcp.FileSystemWriter(folder.name, **options), no_dist=True)


step = [{"name": "step", "type": "int"}]
folder_case("dcp", save_dcp, format="dcp", tensors=tensors(whole), values=step)
folder_case("dcp_zstd", lambda folder: save_dcp(folder, _extensions=[Zstd()]), format="dcp", tensors=tensors(whole), values=step)


def interrupted(folder):
    save_dcp(folder)
    (folder / ".metadata").unlink()


folder_case("dcp_interrupted", interrupted, format="dcp", why="the pieces are there, their names are not",
            tensors=tensors([("__0_0.1", w), ("__0_0.2", base.view(4, 6).t()), ("__0_0.3", b), ("__0_0.4", torch.zeros(0, 3))]),
            values=[{"name": "__0_0.0", "type": "int"}], findings=["odd"])


def escaping(folder):
    save_dcp(folder)
    metadata = (folder / ".metadata").read_bytes()
    (folder / ".metadata").write_bytes(metadata.replace(b"\x8c\x0c__0_0.distcp", b"\x8c\x0c../../etc/xy"))


folder_case("dcp_leaves_its_folder", escaping, format="dcp", skipped=["model.w", "model.t", "model.b", "step", "empty"], findings=["path_escape"])


def zero(stage, world=2):
    names = {"a.weight": torch.arange(6.0).view(2, 3), "a.bias": torch.arange(5.0) + 100}

    def write(folder):
        (folder / "latest").write_text("global_step5")
        target = folder / "global_step5"
        target.mkdir()
        model = {"module": {"a.mean": torch.ones(2)}, "buffer_names": ["a.mean"], "shared_params": {"tied": "a.bias"},
                 "param_shapes": [collections.OrderedDict((name, value.shape) for name, value in names.items())]}
        torch.save(model, target / ("mp_rank_00_model_states.pt" if stage < 3 else "zero_pp_rank_0_mp_rank_00_model_states.pt"))
        flat = torch.cat([value.flatten() for value in names.values()])
        flat = torch.cat([flat, torch.zeros(-len(flat) % world)])
        for rank in range(world):
            if stage < 3:
                parts = {"single_partition_of_fp32_groups": [flat.chunk(world)[rank].clone()]}
            else:
                cut = [torch.cat([value.flatten(), torch.zeros(-value.numel() % world)]).chunk(world)[rank] for value in names.values()]
                parts = {"fp32_flat_groups": [torch.cat(cut)]}
            torch.save({"optimizer_state_dict": {"zero_stage": stage, "partition_count": world, **parts}}, target / f"zero_pp_rank_{rank}_mp_rank_00_optim_states.pt")

    folder_case(f"zero_{stage}", write, format="deepspeed-zero", tensors=tensors([*names.items(), ("a.mean", torch.ones(2)), ("tied", names["a.bias"])]),
                values=[{"name": "zero_stage", "type": "int"}])


zero(2)
zero(3)
