"""Writes pairs.json: small pairs of tensors and what exact arithmetic (fractions) says about them.

Run with a Python that has numpy and ml_dtypes: python make.py
"""

import json
import math
import pathlib
from fractions import Fraction

import ml_dtypes
import numpy as np

rng = np.random.default_rng(30)
BLOCK = 4096
# Bits of precision and exponent of the smallest normal number.
GRIDS = {"f64": (53, -1022), "c128": (53, -1022), "f32": (24, -126), "c64": (24, -126), "f16": (11, -14), "bf16": (8, -126), "f8_e4m3fn": (4, -6)}


def number(x: Fraction) -> float:
    try:
        return float(x)
    except OverflowError:
        return math.inf if x > 0 else -math.inf


def root(x: Fraction) -> Fraction:
    """The square root of a fraction of any size, to 64 bits and more."""
    if x == 0:
        return Fraction(0)
    shift = (x.numerator.bit_length() - x.denominator.bit_length()) // 2 * 2
    digits = math.isqrt(int(x / Fraction(2) ** shift * 2**160))
    return Fraction(digits, 2**80) * Fraction(2) ** (shift // 2)


def finite(z):
    return all(math.isfinite(x) for x in z)


def nan(z):
    return any(math.isnan(x) for x in z)


def exponent(x: Fraction) -> int:
    e = x.numerator.bit_length() - x.denominator.bit_length()
    return e if x >= Fraction(2) ** e else e - 1


def place(x: Fraction, grid) -> int:
    precision, least = grid
    e = max(exponent(abs(x)), least) if x else least
    steps = round(abs(x) * Fraction(2) ** (precision - 1 - e))
    return (1 if x > 0 else -1) * (((e - least) << (precision - 1)) + steps)


def text(x):
    return None if x is None else repr(number(x)) if isinstance(x, Fraction) else repr(x)


def parts(array):
    """Every element as (real, imaginary), integers as integers."""
    if array.dtype.kind in "iub":
        return [(int(x), 0) for x in array.ravel()]
    if array.dtype.kind == "c":
        return [(float(x.real), float(x.imag)) for x in array.ravel()]
    return [(float(x), 0.0) for x in array.ravel()]


def side(values, is_complex):
    good = [tuple(map(Fraction, z)) for z in values if finite(z)]
    n = len(good)
    said = {"nan": sum(map(nan, values)), "zero": sum(z == (0, 0) for z in good)}
    said["inf"] = len(values) - n - said["nan"]
    if n == 0:
        return said | dict.fromkeys(["mean", "std", "min", "max", "norm"])
    means = [sum(part, Fraction(0)) / n for part in zip(*good)]
    spread = sum(((re - means[0]) ** 2 + (im - means[1]) ** 2 for re, im in good), Fraction(0)) / n
    said |= {"std": text(root(spread)), "norm": text(root(sum((re * re + im * im for re, im in good), Fraction(0))))}
    said["mean_abs"] = text(sum((abs(re) for re, _ in good), Fraction(0)) / n)
    ends = (None, None, None) if is_complex else (means[0], min(good)[0], max(good)[0])
    return said | dict(zip(["mean", "min", "max"], map(text, ends)))


def pair(name, dtypes, reference, candidate):
    assert reference.shape == candidate.shape and reference.size <= BLOCK, name
    left, right = parts(reference), parts(candidate)
    is_complex = "c" in (reference.dtype.kind, candidate.dtype.kind)
    grids = [GRIDS[dtype] for dtype in dtypes if dtype in GRIDS]
    grid = min(grids) if grids else None
    both = [i for i in range(len(left)) if finite(left[i]) and finite(right[i])]
    bad = [i for i in range(len(left)) if i not in set(both) and not ((nan(left[i]) and nan(right[i])) or left[i] == right[i])]
    exact = {i: [tuple(map(Fraction, z[i])) for z in (left, right)] for i in both}
    squares = {i: sum((c - r) ** 2 for r, c in zip(*exact[i])) for i in both}
    apart = {i: abs(exact[i][1][0] - exact[i][0][0]) if not is_complex else root(squares[i]) for i in both}
    norm = lambda z: root(z[0] ** 2 + z[1] ** 2) if is_complex else abs(z[0])
    zero = Fraction(0)
    relative = [apart[i] / max(map(norm, exact[i])) if apart[i] else zero for i in both]
    energies = [sum((sum(x * x for x in exact[i][s]) for i in both), zero) for s in (0, 1)]
    error = sum(squares.values(), zero)
    dot = sum((r * c for i in both for r, c in zip(*exact[i])), zero)
    n = len(both)
    differing = [i for i in both if apart[i]]
    steps = lambda i: max(int(abs(c - r)) if grid is None else abs(place(r, grid) - place(c, grid)) for r, c in zip(*exact[i]))
    worst = bad[0] if bad else min(both, key=lambda i: (-apart[i], i)) if both else None
    rms = root(energies[0] / n) if n else zero
    locals_ = [apart[i] / max(norm(exact[i][0]), rms) if max(norm(exact[i][0]), rms) else math.inf for i in differing]
    said = {
        "name": name,
        "dtypes": dtypes,
        "shape": list(reference.shape),
        "hex": [reference.tobytes().hex(), candidate.tobytes().hex()],
        "count": len(left),
        "compared": n,
        "differing": len(differing) + len(bad),
        "nonfinite_differing": len(bad),
        "max_abs": text(max(apart.values())) if n else None,
        "mean_abs": text(sum(apart.values(), zero) / n) if n else None,
        "max_rel": text(max(relative)) if n else None,
        "mean_rel": text(sum(relative, zero) / n) if n else None,
        "mse": text(error / n) if n else None,
        "rel_l2": "0.0" if not differing and not bad else None if energies[0] == 0 else text(root(error / energies[0])),
        "cosine": None if 0 in energies else text(dot / root(energies[0]) / root(energies[1])),
        "max_ulp": repr(float(max(map(steps, both)))) if n else None,
        "max_local": text(max(locals_, default=zero)) if n else None,
        "at": worst,
        "worst": None if worst is None else [repr(float(left[worst][0])), repr(float(right[worst][0]))],
        "reference": side(left, is_complex),
        "candidate": side(right, is_complex),
        "profiles": [],
    }
    for axis, size in enumerate(reference.shape):
        if size == 1 or reference.size == 0:
            continue
        index = [int(np.unravel_index(i, reference.shape)[axis]) for i in range(len(left))]
        inside = lambda j, group: [i for i in group if index[i] == j]
        said["profiles"].append({
            "axis": axis,
            "error": [text(sum((squares[i] for i in inside(j, both)), zero)) for j in range(size)],
            "energy": [text(sum((sum(x * x for x in exact[i][0]) for i in inside(j, both)), zero)) for j in range(size)],
            "max_abs": [text(max((apart[i] for i in inside(j, both)), default=zero)) for j in range(size)],
            "differing": [len(inside(j, differing)) + len(inside(j, bad)) for j in range(size)],
        })
    return said


def noisy(array, size):
    return array * (1 + size * rng.normal(size=array.shape))


def f32(x):
    return np.asarray(x, np.float32)


def bf16(x):
    return np.asarray(x, ml_dtypes.bfloat16)


normal = rng.normal(0, 0.02, (6, 11))
specials = np.array([1, np.nan, np.inf, -np.inf, np.nan, np.inf, 2, 0, -0.0, np.nan])
others = np.array([1, np.nan, np.inf, np.inf, 3, 5, np.nan, -0.0, 0, np.inf])
big = np.array([2**53 + 1, -(2**62) - 1, 2**63 - 1, 7, -3])
pairs = [
    pair("weights", ["f32", "f32"], f32(normal), f32(noisy(normal, 1e-6))),
    pair("weights against bfloat", ["f32", "bf16"], f32(normal), bf16(normal)),
    pair("bfloats", ["bf16", "bf16"], bf16(normal), bf16(noisy(normal, 1e-2))),
    pair("halves", ["f16", "f16"], normal.astype(np.float16), noisy(normal, 1e-3).astype(np.float16)),
    pair("half against bfloat", ["f16", "bf16"], normal.astype(np.float16), bf16(normal)),
    pair("doubles", ["f64", "f64"], normal, noisy(normal, 1e-15)),
    pair("identical", ["f32", "f32"], f32(normal), f32(normal)),
    pair("signs", ["f32", "f32"], f32(normal), f32(-normal)),
    pair("not finite", ["f32", "f32"], f32(specials), f32(others)),
    pair("not finite in bfloat", ["bf16", "f64"], bf16(specials), others),
    pair("overflowing squares", ["f64", "f64"], np.array([1e308, -1.5e308, 3e200]), np.array([1.1e308, -1.5e308, 4e200])),
    pair("an overflowing difference", ["f64", "f64"], np.array([1.7e308, 1.0]), np.array([-1.7e308, 1.0])),
    pair("vanishing squares", ["f64", "f64"], np.array([1e-308, -1.5e-300, 3e-320]), np.array([1.1e-308, -1.5e-300, 4e-320])),
    pair("huge range", ["f64", "f64"], 10.0 ** rng.uniform(-300, 300, 40), 10.0 ** rng.uniform(-300, 300, 40)),
    pair("small against large", ["f64", "f64"], rng.normal(size=9) * 1e-200, rng.normal(size=9) * 1e200),
    pair("denormals", ["f32", "f32"], f32(rng.integers(-99, 99, 30) * 1.4e-45), f32(rng.integers(-99, 99, 30) * 1.4e-45)),
    pair("ids", ["i64", "i64"], big, big + [0, 1, -1, 0, 0]),
    pair("unsigned", ["u64", "i64"], np.array([2**64 - 1, 5, 2**63], np.uint64), np.array([-1, 5, 2**63 - 1], np.int64)),
    pair("integers against doubles", ["i64", "f64"], big, np.array([2.0**53, -(2.0**62), 2.0**63, 7.25, np.nan])),
    pair("singles against integers", ["f32", "i32"], f32([16777216, 0.5, -1e9]), np.array([16777217, 0, -1000000000], np.int32)),
    pair("booleans", ["bool", "bool"], rng.integers(0, 2, (3, 5)).astype(np.bool_), rng.integers(0, 2, (3, 5)).astype(np.bool_)),
    pair("bytes", ["u8", "i8"], np.array([[0, 255, 128]], np.uint8), np.array([[0, -1, -128]], np.int8)),
    pair("complex", ["c64", "c128"], (normal[0] + 1j * normal[1]).astype(np.complex64), normal[0] + 1j * noisy(normal[1], 1e-3)),
    pair("complex against real", ["c128", "f64"], np.array([3 + 4j, complex("nan"), complex(np.inf, 0), 2]), np.array([3, np.nan, np.inf, 2])),
    pair("small floats", ["f8_e4m3fn", "bf16"], np.arange(256, dtype=np.uint8).view(ml_dtypes.float8_e4m3fn), bf16(np.arange(256))),
    pair("zeros against ones", ["f32", "f32"], f32(np.zeros(5)), f32(np.ones(5))),
    pair("orthogonal", ["f32", "f32"], f32([1, 0, 2, 0]), f32([0, 3, 0, 4])),
    pair("ties", ["f32", "f32"], f32([[1, 2, 3], [4, 5, 6]]), f32([[1, 1, 3], [4, 6, 5]])),
    pair("scalar", ["f64", "f32"], np.array(-2.5), f32(-2)),
    pair("empty", ["f32", "i8"], np.zeros((3, 0), np.float32), np.zeros((3, 0), np.int8)),
]
here = pathlib.Path(__file__).parent
(here / "pairs.json").write_text("[\n" + ",\n".join(json.dumps(p) for p in pairs) + "\n]\n")
