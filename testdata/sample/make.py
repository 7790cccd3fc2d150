"""The sample that `make run` looks into: two layers of a small transformer, dumped one tensor to a file and zipped.

Names are `{layer}_{stage}`; `{layer}_scaling` is a Python float and `{layer}_sliding` a Python int, as such dumps have them.
"""
import io, math, pathlib, zipfile
import torch

torch.manual_seed(7)
here = pathlib.Path(__file__).parent
heads, kv_heads, tokens, dim, hidden = 4, 2, 6, 8, 32
with zipfile.ZipFile(here / "run.zip", "w", zipfile.ZIP_DEFLATED) as archive:
    def put(name, value):
        buffer = io.BytesIO()
        torch.save(value, buffer)
        archive.writestr(zipfile.ZipInfo(f"run/{name}.pth", (2026, 1, 1, 0, 0, 0)), buffer.getvalue(), zipfile.ZIP_DEFLATED)

    for layer in range(2):
        bf16 = lambda *shape: torch.randn(shape).to(torch.bfloat16)
        put(f"{layer}_post_ln_pre_attn", bf16(1, tokens, hidden))
        for stage, count in (("query", heads), ("key", kv_heads), ("value", kv_heads)):
            put(f"{layer}_{stage}", bf16(1, count, tokens, dim))
            put(f"{layer}_{stage}_final", bf16(1, count, tokens, dim))
        put(f"{layer}_post_attn", bf16(1, heads, tokens, dim))
        put(f"{layer}_scaling", 1 / math.sqrt(dim))
        put(f"{layer}_sliding", 128)
        put(f"{layer}_post_attn_pre_resid", bf16(1, tokens, hidden))
        put(f"{layer}_pre_mlp", bf16(1, tokens, hidden))
        put(f"{layer}_post_mlp", bf16(1, tokens, hidden))
