"""A dump that transformers' own `model_addition_debugger_context` wrote, of a model with a dict of outputs."""
import hashlib, json, pathlib, shutil
import torch
from transformers.model_debugging_utils import model_addition_debugger_context

HERE = pathlib.Path(__file__).parent / "hf_debug_real"


class Tiny(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.fc = torch.nn.Embedding(5, 2), torch.nn.Linear(2, 3)

    def forward(self, ids, scale=None):
        return {"logits": self.fc(self.embed(ids)) * scale}


def listed(name, tensor):
    data = bytes(tensor.detach().contiguous().reshape(-1).view(torch.uint8).tolist())
    return {"name": name, "dtype": {torch.float32: "f32", torch.int64: "i64"}[tensor.dtype], "shape": list(tensor.shape), "sha256": hashlib.sha256(data).hexdigest()}


shutil.rmtree(HERE, ignore_errors=True)
HERE.mkdir()
torch.manual_seed(0)
model, ids, scale = Tiny(), torch.tensor([[1, 4]]), torch.tensor(2.0)
with torch.no_grad():
    with model_addition_debugger_context(model, debug_path=str(HERE / "input"), do_prune_layers=False, use_repr=False):
        model(ids, scale=scale)
    embedded = model.embed(ids)
    out = model.fc(embedded)
tensors = [listed("Tiny.inputs.args.0", ids), listed("Tiny.inputs.kwargs.scale", scale), listed("Tiny.embed.inputs.args.0", ids), listed("Tiny.embed.outputs", embedded),
           listed("Tiny.fc.inputs.args.0", embedded), listed("Tiny.fc.outputs", out), listed("Tiny_outputs_logits.data", out * 2)]
why = "the debugger's tree leaves out the outputs of modules with children; their files are still there, and read as files"
(HERE / "expect.json").write_text(json.dumps({"why": why, "format": "folder", "tensors": tensors}, indent=1) + "\n")
