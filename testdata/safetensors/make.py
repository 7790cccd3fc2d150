"""Golden safetensors files: what the safetensors library writes, and what it would refuse. Run it with Python 3 and torch, safetensors and numpy to write the cases again."""
import functools, pathlib, sys
import numpy as np

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
import golden
from golden import DTYPES, tensor

case = functools.partial(golden.case, HERE)


import re
import torch
from safetensors.torch import save_file


def header(text, data=b""):
    text = text.encode() if isinstance(text, str) else text
    return lambda path: path.write_bytes(len(text).to_bytes(8, "little") + text + data)


def one(name="a", dtype="F32", shape="[4]", offsets="[0,16]"):
    return f'"{name}":{{"dtype":"{dtype}","shape":{shape},"data_offsets":{offsets}}}'


DATA = np.arange(4, dtype="<f4").tobytes()
A = tensor("a", np.arange(4, dtype="<f4"))
torch.manual_seed(0)
bits = torch.randint(0, 256, (64,), dtype=torch.uint8)
kinds = ["bool", "uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64", "float16", "bfloat16", "float32", "float64", "complex64",
         "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu"]
tensors = {f"t_{kind}": (bits % 2).bool() if kind == "bool" else bits.clone().view(getattr(torch, kind)).reshape(2, -1) for kind in sorted(kinds)}
listing = []
# Runs of digits compare as numbers.
for name, value in sorted(tensors.items(), key=lambda item: [int(part) if part.isdigit() else part for part in re.split(r'(\d+)', item[0])]):
    entry = tensor(name, value.view(torch.uint8).numpy())
    kind = name[2:]
    listing.append({**entry, "dtype": {"bool": "bool"}.get(kind, DTYPES.get(kind, kind.replace("float8", "f8"))), "shape": list(value.shape)})
case("dtypes", lambda path: save_file(tensors, path), "safetensors", format="safetensors", tensors=listing)
case("metadata", lambda path: save_file({"e\u0301\U0001f600.\"q\"": torch.arange(3)}, path, metadata={"format": "pt"}), "safetensors",
     tensors=[tensor("e\u0301\U0001f600.\"q\"", np.arange(3))], format="safetensors")
case("subbyte", header("{" + one("f4", "F4", "[4,8]", "[0,16]") + "," + one("f6", "F6_E2M3", "[32]", "[16,40]") + "}", bytes(range(40))), "safetensors",
     tensors=[{**tensor("f4", np.arange(16, dtype=np.uint8)), "dtype": "F4", "shape": [4, 8]},
              {**tensor("f6", np.arange(16, 40, dtype=np.uint8)), "dtype": "F6_E2M3", "shape": [32]}])
case("empty", header("{}"), "safetensors", tensors=[])
case("cut", header("{" + one() + "," + one("b", "U8", "[9]", "[16,25]") + "}", DATA + bytes(8)), "safetensors", "the last byte is missing: only its tensor is lost",
     tensors=[A], skipped=["b"])
for name, bad in {"unknown_dtype": one("b", "F7", "[2]", "[16,24]"), "overlap": one("b", "F32", "[4]", "[8,24]"), "wrong_size": one("b", "F32", "[3]", "[16,32]"),
                  "negative": one("b", "F32", "[-2]", "[16,24]"), "overflow": one("b", "F32", "[4294967296,4294967296,4]", "[16,32]"),
                  "beyond": one("b", "U8", "[9223372036854775807]", "[16,9223372036854775823]")}.items():
    case(name, header("{" + one() + "," + bad + "}", DATA + bytes(16)), "safetensors", tensors=[A], skipped=["b"])
case("twice", header("{" + one("a", "I32") + "," + one() + "}", DATA), "safetensors", "JSON keeps the last of two equal keys", tensors=[A], skipped=["a"], findings=["odd"])
case("trailing", header("{" + one() + "}", DATA + b"junk"), "safetensors", tensors=[A], findings=["odd"])
case("deep", header('{"a":' + "[" * 300 + "]" * 300 + "}"), "safetensors", error="nested deeper")
case("not_json", header("{'a': 1}"), "safetensors", error="bad header")
case("header_too_long", lambda path: path.write_bytes(b"\xff" * 16), "safetensors", error="the format allows")
case("header_cut", lambda path: path.write_bytes((1000).to_bytes(8, "little") + b"{"), "safetensors", error="cut short")
