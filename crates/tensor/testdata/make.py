"""Writes the golden numbers beside this file: minifloat.json from ml_dtypes, blocks.json from gguf-py, reprs.json from NumPy,
quant.json from torch.

    python crates/tensor/testdata/make.py
"""
import json
import pathlib

import gguf
import ml_dtypes
import numpy as np
import torch

HERE = pathlib.Path(__file__).parent


def write(name, value):
    (HERE / name).write_text(json.dumps(value, separators=(",", ":")).replace('],"', '],\n"').replace('},"', '},\n"') + "\n")


def minifloats():
    """Bits of the f32 for every code, null for NaN."""
    out = {}
    for name, bits in [("float8_e4m3fn", 8), ("float8_e4m3fnuz", 8), ("float8_e5m2", 8), ("float8_e5m2fnuz", 8),
                       ("float8_e8m0fnu", 8), ("float6_e2m3fn", 6), ("float6_e3m2fn", 6), ("float4_e2m1fn", 4)]:
        values = np.arange(2**bits, dtype=np.uint8).view(getattr(ml_dtypes, name)).astype(np.float32)
        out[name] = [None if np.isnan(v) else int(v.view(np.uint32)) for v in values]
    write("minifloat.json", out)


def other(kind, raw):
    """The types that gguf-py can write but not read."""
    if kind == "Q1_0":  # ggml: a set bit is d, a clear one -d
        d = raw[:, :2].copy().view(np.float16).astype(np.float32)
        bits = np.unpackbits(raw[:, 2:], axis=1, bitorder="little").astype(np.float32)
        return d * (2 * bits - 1)
    start = {"Q8_1": 8, "Q8_K": 4}[kind]
    n = {"Q8_1": 32, "Q8_K": 256}[kind]
    return raw[:, start:start + n].copy().view(np.int8).astype(np.float32) * raw[:, :4].copy().view(np.float32)


# Where the scales of each type lie: random bytes there would be NaN now and then, whose bits nobody promises.
HALVES = {"Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0], "Q1_0": [0], "Q2_K": [80, 82], "Q3_K": [108],
          "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208], "TQ1_0": [52], "TQ2_0": [64], "IQ2_XXS": [0], "IQ2_XS": [0],
          "IQ2_S": [0], "IQ3_XXS": [0], "IQ3_S": [0], "IQ1_S": [0], "IQ4_NL": [0], "IQ4_XS": [0]}


def blocks():
    rng = np.random.default_rng(7)
    out = {}
    for kind in gguf.GGMLQuantizationType:
        per, size = gguf.GGML_QUANT_SIZES[kind]
        if per == 1:
            continue
        raw = rng.integers(0, 256, (2, size), dtype=np.uint8)
        for at in HALVES.get(kind.name, []):
            raw[:, at:at + 2] = rng.normal(0, 0.1, 2).astype(np.float16).reshape(2, 1).view(np.uint8)
        if kind.name in ("Q8_1", "Q8_K"):
            raw[:, :4] = rng.normal(0, 0.1, 2).astype(np.float32).reshape(2, 1).view(np.uint8)
        if kind.name == "IQ1_M":  # the top nibble of d is in the last scale
            raw[:, 55] = raw[:, 55] & 0x0F | 0x20
        known = kind.name not in ("Q1_0", "Q8_1", "Q8_K")
        values = gguf.quants.dequantize(raw, kind) if known else other(kind.name, raw)
        assert np.isfinite(values).all(), kind.name
        out[kind.name.lower()] = {"blocks": raw.tobytes().hex(), "f32": values.astype("<f4").tobytes().hex()}
    write("blocks.json", out)


def reprs():
    """What NumPy prints for bits of f16, f32, f64 and complex values."""
    rng = np.random.default_rng(8)
    out = {}
    edge = [0.0, -0.0, 1.0, -1.0, 0.1, 1e-4, 9.999e-5, 1e16, 9.9e15, 123456789.0, 1e-45, np.inf, -np.inf, np.nan, 1 / 3, 1e22, 2.5]
    with np.errstate(over="ignore"):
        for name, bits, real in [("f16", "u2", "f2"), ("f32", "u4", "f4"), ("f64", "u8", "f8")]:
            values = np.concatenate([np.array(edge, real), rng.integers(0, np.iinfo(bits).max, 60, bits).view(real)])
            out[name] = [[f"{int(v.view(bits)):x}", str(v)] for v in values]
    pairs = [(1, 2), (1.5, -0.1), (0, 2), (-0.0, 2), (0, -0.0), (np.nan, np.inf), (1e20, 1e-7), (3, -np.inf), (np.nan, -np.nan), (0, np.nan)]
    out["c64"] = [[[f"{int(np.float32(p).view('u4')):x}" for p in pair], str(np.array(pair, "f4").view("c8")[0])] for pair in pairs]
    out["c128"] = [[[f"{int(np.float64(p).view('u8')):x}" for p in pair], str(np.array(pair, "f8").view("c16")[0])] for pair in pairs]
    longs = np.array(["0.1", "1", "-3.5", "1e4000", "1e-4940", "3.14159265358979323846", "nan", "-inf", "123456789012345678", "1e-5", "12e17"], np.longdouble)
    longs = np.concatenate([longs, np.sqrt(np.arange(2, 30).astype(np.longdouble)) * np.longdouble("1e100"), np.finfo(np.longdouble).smallest_subnormal.reshape(1)])
    out["f80"] = [[v.tobytes()[:10].hex(), str(v)] for v in longs]
    times = [("D", 19000), ("s", 1700000000), ("ns", -1), ("Y", 54), ("M", 5), ("us", 1234567), ("h", 100), ("W", 3), ("D", -800000),
             ("D", 3000000), ("s", -2**63), ("ms", 5), ("m", 1), ("ps", 7), ("fs", -9), ("as", 1), ("Y", -3000), ("Y", 9000), ("M", -1)]
    out["datetime"] = [[unit, count, str(np.datetime64(count, unit))] for unit, count in times]
    write("reprs.json", out)


def quant():
    """Codes, parameters and the bits that torch's dequantize() gives."""
    torch.manual_seed(9)
    cases = []
    x = torch.randn(6, 7) * 3

    def case(name, q, codes, axis, scales, zeros):
        f = q.dequantize().contiguous().numpy()
        cases.append({"dtype": name, "shape": list(q.shape), "codes": codes.hex(), "axis": axis, "scales": scales, "zero_points": zeros,
                      "f32": f.astype("<f4").tobytes().hex()})

    for dtype, name in [(torch.qint8, "qint8"), (torch.quint8, "quint8"), (torch.qint32, "qint32")]:
        scale, zero = 0.037, 3 if name != "qint32" else 123456789
        q = torch.quantize_per_tensor(x, scale, zero, dtype)
        case(name, q, q.int_repr().numpy().tobytes(), None, [q.q_scale()], [q.q_zero_point()])
        scales, zeros = torch.rand(7, dtype=torch.float64) / 10 + 0.01, torch.arange(7)
        q = torch.quantize_per_channel(x, scales, zeros, 1, dtype)
        case(name, q, q.int_repr().numpy().tobytes(), 1, q.q_per_channel_scales().tolist(), q.q_per_channel_zero_points().tolist())
    scales, zeros = torch.rand(7, dtype=torch.float64) * 1e-8 + 1e-8, torch.arange(7) * 1234567
    q = torch.quantize_per_channel(x, scales, zeros, 1, torch.qint32)
    case("qint32", q, q.int_repr().numpy().tobytes(), 1, q.q_per_channel_scales().tolist(), q.q_per_channel_zero_points().tolist())
    scales, zeros = torch.rand(6) / 10 + 0.01, torch.randn(6) * 3
    q = torch.quantize_per_channel(x, scales, zeros, 0, torch.quint8)
    case("quint8", q, q.int_repr().numpy().tobytes(), 0, q.q_per_channel_scales().tolist(), q.q_per_channel_zero_points().tolist())
    x8 = torch.randn(6, 8)
    q = torch.quantize_per_channel(x8, scales, zeros, 0, torch.quint4x2)
    case("quint4x2", q, bytes(q.untyped_storage()), 0, q.q_per_channel_scales().tolist(), q.q_per_channel_zero_points().tolist())
    write("quant.json", cases)


if __name__ == "__main__":
    minifloats()
    blocks()
    reprs()
    quant()
