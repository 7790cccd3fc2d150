"""Writes numbers.json: small arrays and what exact arithmetic (fractions, math.fsum) and NumPy say about them.

Run with a Python that has numpy and ml_dtypes: python make.py
"""

import json
import math
import pathlib
from fractions import Fraction

import ml_dtypes
import numpy as np

rng = np.random.default_rng(20)


def root(x: Fraction) -> float:
    """The square root of a fraction of any size, correctly scaled."""
    if x == 0:
        return 0.0
    shift = (x.numerator.bit_length() - x.denominator.bit_length()) // 2 * 2
    scaled = x / Fraction(2) ** shift
    # 2 * 64 bits under the root leave 64 after it.
    digits = math.isqrt(int(scaled * 2**128))
    return number(Fraction(digits, 2**64) * Fraction(2) ** (shift // 2))


def number(x: Fraction) -> float:
    try:
        return float(x)
    except OverflowError:
        return math.inf if x > 0 else -math.inf


def text(x):
    if isinstance(x, complex):
        return [repr(x.real), repr(x.imag)]
    return repr(x)


def case(name, dtype, array):
    wide = [complex(x) if array.dtype.kind == "c" else int(x) if array.dtype.kind in "iub" else float(x) for x in array.ravel()]
    bad = lambda test: [x for x in wide if isinstance(x, (float, complex)) and test(x)]
    is_nan = lambda x: math.isnan(x.real) or math.isnan(x.imag)
    nan = bad(is_nan)
    inf = [x for x in bad(lambda x: math.isinf(x.real) or math.isinf(x.imag)) if not is_nan(x)]
    negative = [x for x in inf if isinstance(x, float) and x < 0]
    finite = [x for x in wide if isinstance(x, int) or (math.isfinite(x.real) and math.isfinite(x.imag))]
    said = {
        "name": name,
        "dtype": dtype,
        "shape": list(array.shape),
        "hex": array.tobytes().hex(),
        "count": len(wide),
        "finite": len(finite),
        "nan": len(nan),
        "pos_inf": len(inf) - len(negative),
        "neg_inf": len(negative),
        "zeros": sum(x == 0 for x in finite),
    }
    n = len(finite)
    parts = [[Fraction(x.real) for x in finite], [Fraction(x.imag) for x in finite]]
    sums = [sum(part, Fraction(0)) for part in parts]
    squares = [re * re + im * im for re, im in zip(*parts)]
    if n == 0:
        said |= dict.fromkeys(["sum", "mean", "std", "norm", "min", "max", "sum_abs", "max_abs"])
        return said
    means = [total / n for total in sums]
    spread = sum(((re - means[0]) ** 2 + (im - means[1]) ** 2 for re, im in zip(*parts)), Fraction(0)) / n
    said |= {"std": text(root(spread)), "norm": text(root(sum(squares, Fraction(0))))}
    if array.dtype.kind == "c":
        said |= {
            "sum": [repr(number(x)) for x in sums],
            "mean": [repr(number(x)) for x in means],
            "min": None,
            "max": None,
            "sum_abs": text(math.fsum(abs(x) for x in finite)),
            "max_abs": text(max(abs(x) for x in finite)),
        }
        return said
    exact = int if isinstance(finite[0], int) else number
    said |= {
        "sum": text(exact(sums[0])),
        "mean": text(number(means[0])),
        "min": text(min(finite) + 0),
        "max": text(max(finite) + 0),
        "sum_abs": text(exact(sum(map(abs, parts[0])))),
        "max_abs": text(max(map(abs, finite))),
    }
    if exact is number and math.isfinite(number(sum(map(abs, parts[0])))):
        assert math.fsum(finite) == number(sums[0]), name
        if array.dtype == np.float64 and max(map(abs, finite)) < 1e100 and min(map(abs, finite)) > 1e-100:
            assert math.isclose(np.std(np.array(finite)), root(spread), rel_tol=1e-6), name
    return said


def tiny(dtype, bits, kind):
    return np.array(bits, dtype=kind).view(dtype)


normal = rng.normal(0, 0.02, 50)
cases = [
    case("weights", "f32", normal.astype(np.float32)),
    case("weights in double", "f64", normal),
    case("weights in bfloat", "bf16", normal.astype(ml_dtypes.bfloat16)),
    case("weights in half", "f16", normal.astype(np.float16)),
    case("a matrix", "f32", rng.normal(1, 1, (5, 7)).astype(np.float32)),
    case("large mean", "f64", 1e6 + 1e-3 * rng.normal(size=40)),
    case("large mean in single", "f32", (4096 + 1e-2 * rng.normal(size=40)).astype(np.float32)),
    case("huge range", "f64", rng.choice([-1.0, 1.0], 40) * 10.0 ** rng.uniform(-300, 300, 40)),
    case("denormals", "f64", rng.integers(-(2**40), 2**40, 30) * 5e-324),
    case("denormals in single", "f32", (rng.integers(-(2**20), 2**20, 30) * 1.4e-45).astype(np.float32)),
    case("NaN and infinities", "f32", np.array([1, np.nan, -np.inf, 2, np.inf, np.inf, 0, -0.0, -3], np.float32)),
    case("NaN and infinities in half", "f16", np.array([1, np.nan, -np.inf, 2, np.inf, 0, -3, 65504, 6e-8], np.float16)),
    case("all NaN", "bf16", np.full(20, np.nan, ml_dtypes.bfloat16)),
    case("cancelling", "f64", np.array([1e16, 1.0, -1e16, 1e-3, 3e15, -3e15, 1e-9])),
    case("overflowing squares", "f64", np.array([1e308, -1.5e308, 3e200, 1.0])),
    case("vanishing squares", "f64", np.array([1e-308, -1.5e-300, 3e-320])),
    case("constant", "f64", np.full(33, 0.1)),
    case("signed", "i64", np.array([2**63 - 1, -(2**63), 2**53 + 1, -7, 0], np.int64)),
    case("unsigned", "u64", np.array([2**64 - 1, 2**64 - 2, 2**53 + 1, 0], np.uint64)),
    case("bytes", "i8", np.arange(-128, 128, 5, dtype=np.int8)),
    case("words", "u16", rng.integers(0, 65536, 40).astype(np.uint16)),
    case("integers", "i32", rng.integers(-(2**31), 2**31, 40).astype(np.int32)),
    case("booleans", "bool", rng.integers(0, 2, 37).astype(np.bool_)),
    case("complex", "c64", (rng.normal(size=25) + 1j * rng.normal(3, 2, 25)).astype(np.complex64)),
    case("complex with NaN", "c128", np.array([1 + 2j, complex("nan"), complex(np.inf, 1), 0, -3e200 + 4e200j])),
    case("f8", "f8_e4m3fn", tiny(ml_dtypes.float8_e4m3fn, range(256), np.uint8)),
    case("f8 with infinities", "f8_e5m2", tiny(ml_dtypes.float8_e5m2, range(256), np.uint8)),
    case("scales", "f8_e8m0fnu", tiny(ml_dtypes.float8_e8m0fnu, [0, 1, 100, 127, 128, 254, 255], np.uint8)),
    case("empty", "f32", np.zeros((3, 0), np.float32)),
    case("scalar", "f64", np.array(-2.5)),
    case("one integer", "i16", np.array([-300], np.int16)),
]
here = pathlib.Path(__file__).parent
(here / "numbers.json").write_text("[\n" + ",\n".join(json.dumps(c) for c in cases) + "\n]\n")
