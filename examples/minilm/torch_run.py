"""all-MiniLM-L6-v2 in PyTorch, recorded: `python torch_run.py --weights DIR --out RUN [--dtype float32|bfloat16] [--fault NAME]`.

The BERT forward pass in torch modules, named as the weights are; `weights.sh DIR` fetches those. The token ids are in
`inputs.json`, so no tokenizer is needed. `--fault` seeds one of the mistakes people make when they port BERT.
"""

from __future__ import annotations

import argparse
import json
import math
import struct
from pathlib import Path

import torch
import twinscope
from torch import Tensor, nn

# Modules that only pass on what their last module returned: other implementations have no name for them.
PASSING_ON = ("embeddings", "encoder.layer.*.output")
FAULTS = ("gelu_tanh", "eps", "mask_missing", "scale_missing", "qk_swapped")
DTYPES = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16, "I64": torch.int64}


class Embeddings(nn.Module):
    def __init__(self, config: dict) -> None:
        super().__init__()
        width = config["hidden_size"]
        self.word_embeddings = nn.Embedding(config["vocab_size"], width)
        self.token_type_embeddings = nn.Embedding(config["type_vocab_size"], width)
        self.position_embeddings = nn.Embedding(config["max_position_embeddings"], width)
        self.LayerNorm = nn.LayerNorm(width, eps=config["layer_norm_eps"])

    def forward(self, input_ids: Tensor) -> Tensor:
        words = self.word_embeddings(input_ids)
        words = words + self.token_type_embeddings(torch.zeros_like(input_ids))
        return self.LayerNorm(words + self.position_embeddings(torch.arange(input_ids.size(1))))


class SelfAttention(nn.Module):
    def __init__(self, config: dict) -> None:
        super().__init__()
        width, self.heads = config["hidden_size"], config["num_attention_heads"]
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))
        self.scale = math.sqrt(width // self.heads)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        batch, length, width = x.shape
        query, key, value = (proj(x).view(batch, length, self.heads, -1).transpose(1, 2) for proj in (self.query, self.key, self.value))
        scores = twinscope.record("scores", query @ key.transpose(-1, -2) / self.scale + mask)
        weights = twinscope.record("", scores.softmax(-1), role="attn", dims="b h s t")
        return (weights @ value).transpose(1, 2).reshape(batch, length, width)


class Residual(nn.Module):
    def __init__(self, width: int, config: dict) -> None:
        super().__init__()
        self.dense = nn.Linear(width, config["hidden_size"])
        self.LayerNorm = nn.LayerNorm(config["hidden_size"], eps=config["layer_norm_eps"])

    def forward(self, x: Tensor, residual: Tensor) -> Tensor:
        return self.LayerNorm(self.dense(x) + residual)


class Layer(nn.Module):
    def __init__(self, config: dict) -> None:
        super().__init__()
        self.attention = nn.Module()
        self.attention.self, self.attention.output = SelfAttention(config), Residual(config["hidden_size"], config)
        self.intermediate = nn.Module()
        self.intermediate.dense = nn.Linear(config["hidden_size"], config["intermediate_size"])
        self.output = Residual(config["intermediate_size"], config)
        self.approximate = "none"

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        x = self.attention.output(self.attention.self(x, mask), x)
        activated = nn.functional.gelu(self.intermediate.dense(x), approximate=self.approximate)
        return self.output(twinscope.record("intermediate", activated, role="out"), x)


class Bert(nn.Module):
    def __init__(self, config: dict) -> None:
        super().__init__()
        self.embeddings = Embeddings(config)
        self.encoder = nn.Module()
        self.encoder.layer = nn.ModuleList(Layer(config) for _ in range(config["num_hidden_layers"]))

    def forward(self, *, input_ids: Tensor, attention_mask: Tensor) -> dict[str, Tensor]:
        x = self.embeddings(input_ids)
        hidden = twinscope.record("attention_mask.hidden", 1 - attention_mask[:, None, None].to(x.dtype))
        minimum = twinscope.record("attention_mask.minimum", torch.tensor(torch.finfo(x.dtype).min, dtype=x.dtype))
        mask = twinscope.record("attention_mask", hidden * minimum)
        for layer in self.encoder.layer:
            x = layer(x, mask)
        return {"last_hidden_state": x}


def load(folder: Path, dtype: torch.dtype) -> Bert:
    model = Bert(json.loads((folder / "config.json").read_text()))
    missing, _ = model.load_state_dict(read_safetensors(folder / "model.safetensors"), strict=False)
    assert not missing, f"not among the weights: {missing}"
    return model.to(dtype).eval()


def read_safetensors(path: Path) -> dict[str, Tensor]:
    """Small enough not to need the library."""
    data = bytearray(path.read_bytes())
    (length,) = struct.unpack_from("<Q", data)
    header = json.loads(data[8 : 8 + length])
    header.pop("__metadata__", None)
    start = 8 + length
    return {
        name: torch.frombuffer(data, dtype=DTYPES[entry["dtype"]], count=math.prod(entry["shape"]), offset=start + entry["data_offsets"][0]).view(entry["shape"])
        for name, entry in header.items()
    }


def break_it(model: Bert, fault: str | None) -> None:
    """A fault in the third layer, where there is a choice."""
    layer = model.encoder.layer[2]
    if fault == "gelu_tanh":
        layer.approximate = "tanh"
    elif fault == "eps":
        layer.output.LayerNorm.eps = 1e-5
    elif fault == "scale_missing":
        layer.attention.self.scale = 1.0
    elif fault == "qk_swapped":
        attention = layer.attention.self
        attention.query, attention.key = attention.key, attention.query


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weights", type=Path, required=True, help="where weights.sh put them")
    parser.add_argument("--inputs", type=Path, default=Path(__file__).with_name("inputs.json"))
    parser.add_argument("--out", type=Path, required=True, help="the run to write")
    parser.add_argument("--dtype", choices=["float32", "bfloat16", "float16"], default="float32")
    parser.add_argument("--fault", choices=FAULTS)
    arguments = parser.parse_args()

    inputs = json.loads(arguments.inputs.read_text())
    ids, mask = torch.tensor(inputs["input_ids"]), torch.tensor(inputs["attention_mask"])
    model = load(arguments.weights, getattr(torch, arguments.dtype))
    break_it(model, arguments.fault)
    if arguments.fault == "mask_missing":
        mask = torch.ones_like(mask)
    label = f"torch {arguments.dtype}" + (f", {arguments.fault}" if arguments.fault else "")
    with twinscope.capture(model, arguments.out, label=label, overwrite=True, inputs=False, exclude=PASSING_ON) as run, torch.no_grad():
        output = model(input_ids=ids, attention_mask=mask)["last_hidden_state"]
    print(f"{arguments.out}: {run.records} tensors; the output has {output.numel()} values, {int(output.isnan().sum())} of them NaN")


if __name__ == "__main__":
    main()
