"""Folders of tensor files as people and tools leave them; expect.json says what must be listed."""
import hashlib, json, pathlib, shutil
import numpy as np
import safetensors.numpy
import torch

HERE = pathlib.Path(__file__).parent
DTYPES = {"float32": "f32", "int64": "i64", "float16": "f16"}


def array(seed, shape=(2, 3), dtype="f4"):
    return (np.arange(int(np.prod(shape))).reshape(shape) + seed).astype(dtype)


def tensor(name, a):
    return {"name": name, "dtype": DTYPES[str(a.dtype)], "shape": list(a.shape), "sha256": hashlib.sha256(a.tobytes()).hexdigest()}


def case(name, files, format, tensors, skipped=(), findings=(), values=()):
    folder = HERE / name
    shutil.rmtree(folder, ignore_errors=True)
    for path, content in files.items():
        path = folder / path
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, bytes):
            path.write_bytes(content)
        elif isinstance(content, str):
            path.write_text(content)
        elif isinstance(content, np.ndarray):
            np.save(path, content)
        else:
            content(path)
    expect = {"format": format, "tensors": [tensor(*t) for t in tensors], "values": list(values), "skipped": list(skipped), "findings": list(findings)}
    (folder / "expect.json").write_text(json.dumps(expect, indent=1) + "\n")


def st(tensors):
    return safetensors.numpy.save(tensors)


def pt(value):
    return lambda path: torch.save(value, path)


case("ranks", {f"input/rank{r}/{n}.npy": array(10 * r + i) for r in (0, 1) for i, n in enumerate(["1_query", "0_query"])} | {"input/notes.txt": "x"}, "folder",
     [("rank0/0_query", array(1)), ("rank1/0_query", array(11)), ("rank0/1_query", array(0)), ("rank1/1_query", array(10))])
case("common_top_folder", {"input/dump/a.npy": array(1), "input/dump/b.npy": array(2)}, "folder", [("a", array(1)), ("b", array(2))])
case("mixed", {"input/x.npy": array(1), "input/m.safetensors": st({"b": array(2), "a": array(3)}), "input/broken.safetensors": b"\xff" * 40,
               "input/page.npy": "<!doctype html><p>404", "input/lfs.pt": "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n"}, "folder",
     [("m.a", array(3)), ("m.b", array(2)), ("x", array(1))], skipped=["broken.safetensors", "lfs.pt", "page.npy"])

shard1, shard2 = {"layers.0.w": array(1), "layers.2.w": array(2)}, {"layers.1.w": array(3), "extra": array(4)}
index = {"metadata": {}, "weight_map": {"layers.0.w": "model-00001-of-00003.safetensors", "layers.2.w": "model-00001-of-00003.safetensors",
                                        "layers.1.w": "model-00002-of-00003.safetensors", "gone": "model-00003-of-00003.safetensors"}}
shards = {"model-00001-of-00003.safetensors": st(shard1), "model-00002-of-00003.safetensors": st(shard2)}
listed = [("layers.0.w", array(1)), ("layers.1.w", array(3)), ("layers.2.w", array(2)), ("extra", array(4))]
case("sharded_in_folder", {f"input/{k}": v for k, v in shards.items()} | {"input/model.safetensors.index.json": json.dumps(index), "input/loose.npy": array(9)}, "folder",
     [("loose", array(9))] + listed, skipped=["gone"], findings=["odd"])
case("sharded_index", shards | {"input.safetensors.index.json": json.dumps(index)}, "safetensors-index", listed, skipped=["gone"], findings=["odd"])
escape = {"weight_map": {"layers.0.w": "model-00001-of-00003.safetensors", "layers.2.w": "model-00001-of-00003.safetensors", "x": "../x.safetensors", "y": "/etc/passwd"}}
case("sharded_index_leaves_its_folder", {"model-00001-of-00003.safetensors": st(shard1), "input.safetensors.index.json": json.dumps(escape)}, "safetensors-index",
     [("layers.0.w", array(1)), ("layers.2.w", array(2))], skipped=["x", "y"], findings=["path_escape", "path_escape"])

described = lambda file: {"shape": "torch.Size([2, 3])", "dtype": "torch.float32", "value": file}
tree = {"module_path": "Toy", "inputs": {"args": [described("./Toy_in.safetensors")]}, "children": [
    {"module_path": "Toy.fc", "inputs": {"args": [described("./Toy_in.safetensors")]}, "children": [], "outputs": described("./Toy.fc_out.safetensors")}],
    "outputs": described(["tensor([[1., 2.]])"])}
case("hf_debug", {"input/Toy_debug_tree_FULL_TENSORS.json": json.dumps(tree), "input/Toy_debug_tree_SUMMARY.json": json.dumps(tree),
                  "input/Toy_in.safetensors": st({"data": array(1)}), "input/Toy.fc_out.safetensors": st({"data": array(2)})}, "folder",
     [("Toy.inputs.args.0", array(1)), ("Toy.fc.inputs.args.0", array(1)), ("Toy.fc.outputs", array(2))], skipped=["Toy.outputs"])

dump = lambda seed: pt({"value": torch.from_numpy(array(seed)), "meta": {"dims": "t h", "world_rank": 0}})
case("sglang", {f"input/exp/step=0___rank=0___dump_index={i}___name={n}.pt": dump(i) for i, n in ((10, "norm"), (9, "layer_1_mlp"), (2, "layer_0_attn___layer_id=0"))}, "folder",
     [("layer_0_attn", array(2)), ("layer_1_mlp", array(9)), ("norm", array(10))])
case("sglang_hooks", {"input/TP0_PP0_Rank0_pid123/Pass00000.pt": pt({"model.b": torch.from_numpy(array(1)), "model.a": torch.from_numpy(array(2))})}, "folder",
     [("TP0_PP0_Rank0/Pass00000.model.b", array(1)), ("TP0_PP0_Rank0/Pass00000.model.a", array(2))])
case("megatron", {f"input/iter_0000100/mp_rank_0{r}/model_optim_rng.pt": pt({"model": {"w": torch.from_numpy(array(r))}}) for r in (0, 1)} |
     {"input/latest_checkpointed_iteration.txt": "100"}, "folder", [(f"mp_rank_0{r}/model_optim_rng.model.w", array(r)) for r in (0, 1)])
