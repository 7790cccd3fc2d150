"""Runs written by the real Python package: a torch model with weights and gradients, one whose process was killed, two ranks.

What machine wrote them is taken out, so that writing them anew changes times and nothing else."""
import hashlib, json, os, pathlib, shutil, signal, subprocess, sys

here = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(here.parents[1] / "python" / "src"))
import torch
import twinscope

DTYPES = {torch.float32: "f32", torch.bfloat16: "bf16", torch.int64: "i64"}


def case(name):
    shutil.rmtree(here / name, ignore_errors=True)
    (here / name).mkdir()
    return here / name / "input"


def anonymous(run):
    for file in [run / "run.json", *run.glob("rank-*/rank.json")]:
        if file.exists():
            about = json.loads(file.read_text())
            about |= {key: value for key, value in {"host": "somewhere", "argv": ["make_python.py"], "pid": 1, "git": "0" * 40}.items() if key in about}
            file.write_text(json.dumps(about) + "\n")


def listed(name, tensor):
    tensor = torch.as_tensor(tensor).detach().contiguous()
    data = bytes(tensor.reshape(-1).view(torch.uint8).tolist())
    return {"name": name, "dtype": DTYPES[tensor.dtype], "shape": list(tensor.shape), "sha256": hashlib.sha256(data).hexdigest()}


def expect(run, why, tensors):
    anonymous(run)
    (run.parent / "expect.json").write_text(json.dumps({"why": why, "format": "run", "tensors": tensors}, indent=1) + "\n")


torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Dropout(0.5), torch.nn.ReLU(inplace=True), torch.nn.Linear(4, 2).bfloat16()).eval()
x = torch.arange(6.0).reshape(2, 3)


class Cast(torch.nn.Module):
    def __init__(self, layers):
        super().__init__()
        self.layers = layers

    def forward(self, x):
        for layer in self.layers:
            x = layer(x.bfloat16() if layer is self.layers[-1] else x)
        return {"logits": x, "best": x.argmax(-1)}


model = Cast(model)
run = case("python_torch")
with twinscope.capture(model, run, params=True, grads=True):
    out = model(x)
    out["logits"].sum().backward()
    twinscope.step()
    twinscope.record("loss", 0.5)
first, _, _, last = model.layers
hidden = first(x)
relu = hidden.relu()
weights = [(name, value) for name, value in model.named_parameters()]
grad = torch.autograd.grad(last(relu.bfloat16()).sum(), [*model.parameters()])
grad_relu = torch.autograd.grad(last((r := relu.detach().requires_grad_()).bfloat16()).sum(), r)[0]
tensors = [listed(name, value) for name, value in weights]
tensors += [listed("model.in", x), listed("layers.0", hidden), listed("layers.1", hidden), listed("layers.2", relu), listed("layers.3.in", relu.bfloat16())]
tensors += [listed("layers.3", out["logits"]), listed("model.logits", out["logits"]), listed("model.best", out["best"])]
index = [json.loads(line) for line in (run / "rank-00000" / "index.jsonl").read_text().splitlines()]
gradients = {f"{name}.param_grad": listed(f"{name}.param_grad", value) for (name, _), value in zip(weights, grad)}
gradients |= {"layers.2.grad": listed("layers.2.grad", grad_relu), "layers.3.grad": listed("layers.3.grad", torch.ones(2, 2).bfloat16())}
gradients["model.grad.logits"] = listed("model.grad.logits", torch.ones(2, 2).bfloat16())
before_relu = grad_relu * (hidden > 0)
gradients["layers.0.grad"] = listed("layers.0.grad", before_relu)
gradients["layers.1.grad"] = listed("layers.1.grad", before_relu)
for line in index:
    if line["k"] == "t" and line["role"] in ("grad", "param_grad"):
        name = f"{line['name'] or 'model'}.{line['role']}" + (f".{line['arg']}" if line["arg"] not in ("", "0") else "")
        tensors.append(gradients[name])
loss = json.loads(json.dumps({"name": "step-1/loss", "dtype": "f64", "shape": [], "sha256": hashlib.sha256(bytes.fromhex("000000000000e03f")).hexdigest()}))
expect(run, "a torch model by module path, weights first, gradients last; written by the Python package", [*tensors, loss])

run = case("python_killed")
child = subprocess.run([sys.executable, "-c", f"""
import os, signal, sys
sys.path.insert(0, {str(here.parents[1] / "python" / "src")!r})
import torch, twinscope
with twinscope.capture({str(run)!r}, sync=True):
    for number in range(5):
        twinscope.record("x", torch.full((3,), number))
        if number == 2:
            os.kill(os.getpid(), signal.SIGKILL)
"""])
assert child.returncode == -signal.SIGKILL
expect(run, "killed with -9 after the third tensor: the header was never filled in", [listed(f"x@{n}" if n else "x", torch.full((3,), n)) for n in range(3)])

run = case("python_ranks")
whole = torch.arange(8.0).reshape(2, 4)
for rank in range(2):
    with twinscope.capture(run, rank=rank, world_size=2):
        twinscope.record("h", whole[:, rank * 2 : rank * 2 + 2], dims="b h[tp]")
expect(run, "two processes of one run", [listed(f"rank-{rank}/h", whole[:, rank * 2 : rank * 2 + 2]) for rank in range(2)])
