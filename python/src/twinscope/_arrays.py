"""What can be recorded: torch tensors, NumPy and JAX arrays, anything with the buffer or array protocol, Python numbers.

Frameworks are never imported here: a torch tensor can only come from a program that has imported torch.
"""

from __future__ import annotations

import ctypes
import struct
import sys
from dataclasses import dataclass, field
from typing import Any

from ._writer import SAFETENSORS, Chunk, Line

TORCH = {
    "float32": "f32", "float64": "f64", "float16": "f16", "bfloat16": "bf16", "bool": "bool",
    "uint8": "u8", "int8": "i8", "uint16": "u16", "int16": "i16", "uint32": "u32", "int32": "i32", "uint64": "u64", "int64": "i64",
    "complex32": "c32", "complex64": "c64", "complex128": "c128",
    "float8_e4m3fn": "f8_e4m3fn", "float8_e4m3fnuz": "f8_e4m3fnuz", "float8_e5m2": "f8_e5m2", "float8_e5m2fnuz": "f8_e5m2fnuz",
    "float8_e8m0fnu": "f8_e8m0fnu", "float4_e2m1fn_x2": "f4_e2m1fn_x2",
}  # fmt: skip
# NumPy's names, and those of ml_dtypes, which JAX brings.
NUMPY = TORCH | {"longdouble": "float128", "float128": "float128", "clongdouble": "complex256", "complex256": "complex256"}


READ = 0x100  # PyBUF_READ
SMALL = 1 << 18  # bytes; copying less than this takes torch longer to begin than to do


class NotRecordable(TypeError):
    """Why a value has no bytes to record."""


@dataclass
class Facts:
    """What the index says of a tensor besides its name."""

    dtype: str
    shape: list[int]
    more: Line = field(default_factory=dict)

    def put(self, line: Line) -> None:
        stored = SAFETENSORS.get(self.dtype)
        if stored:
            line["dtype"] = stored
        else:
            line["dtype"], line["ldtype"] = "U8", self.dtype
        line["shape"] = self.shape
        if self.more:
            line.update(self.more)


class BufferPayload:
    """Values that lie in memory as they should."""

    def __init__(self, data: Chunk, keep: Any = None) -> None:
        self._data = memoryview(data)
        self._keep = keep
        self.nbytes = len(self._data)

    def copy_into(self, target: memoryview) -> None:
        target[:] = self._data

    def bytes(self) -> Chunk:
        return self._data


# A view of memory somewhere, without the type that ctypes would make for every length.
_view = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int)(("PyMemoryView_FromMemory", ctypes.pythonapi))


class TorchPayload:
    """A torch tensor, wherever and however it lies. What `bytes` gives is a view that lives as long as this."""

    def __init__(self, tensor: Any, plain: bool = False) -> None:
        self._tensor = tensor
        #: It lies in memory as it should.
        self._plain = plain
        self.nbytes: int = tensor.nbytes

    def copy_into(self, target: memoryview) -> None:
        if self._plain and self.nbytes < SMALL:
            if self.nbytes:
                ctypes.memmove(ctypes.addressof(ctypes.c_char.from_buffer(target)), self._tensor.data_ptr(), self.nbytes)
            return
        torch = sys.modules["torch"]
        raw = torch.frombuffer(target, dtype=torch.uint8)
        if "float4" in str(self._tensor.dtype):  # torch cannot copy what holds two values a byte
            raw.copy_(self._tensor.contiguous().view(torch.uint8).reshape(-1))
        else:
            raw.view(self._tensor.dtype).view(self._tensor.shape).copy_(self._tensor)

    def bytes(self) -> Chunk:
        if not self.nbytes:
            return b""
        torch = sys.modules["torch"]
        if not has_address(self._tensor, torch):
            copy = bytearray(self.nbytes)
            self.copy_into(memoryview(copy))
            return copy
        if not self._plain:
            self._tensor, self._plain = self._tensor.to("cpu").contiguous(), True
        view: memoryview = _view(self._tensor.data_ptr(), self.nbytes, READ)
        return view


def has_address(tensor: Any, torch: Any) -> bool:
    """A subclass may hold its values elsewhere (a result of another rank that is still under way): only torch's own have an address."""
    return type(tensor) is torch.Tensor or type(tensor) is torch.nn.Parameter


def is_torch(value: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def is_jax(value: Any) -> bool:
    jax = sys.modules.get("jax")
    return jax is not None and isinstance(value, jax.Array)


def is_jax_tracer(value: Any) -> bool:
    jax = sys.modules.get("jax")
    return jax is not None and isinstance(value, jax.core.Tracer)


def is_array(value: Any) -> bool:
    """Whether a leaf of somebody's outputs is worth recording."""
    return is_torch(value) or is_jax(value) or (hasattr(value, "__array_interface__") and hasattr(value, "dtype"))


def describe(value: Any) -> tuple[Facts, BufferPayload | TorchPayload]:
    """The facts and the values of anything recordable; raises `NotRecordable`."""
    if is_torch(value):
        return _torch(value)
    if isinstance(value, bool):
        return Facts("bool", []), BufferPayload(bytes([value]))
    if isinstance(value, int):
        if not -(1 << 63) <= value < 1 << 63:
            raise NotRecordable(f"the number {value} needs more than 64 bits")
        return Facts("i64", []), BufferPayload(struct.pack("<q", value))
    if isinstance(value, float):
        return Facts("f64", []), BufferPayload(struct.pack("<d", value))
    if isinstance(value, complex):
        return Facts("c128", []), BufferPayload(struct.pack("<dd", value.real, value.imag))
    return _numpy(value)


def _torch(tensor: Any) -> tuple[Facts, TorchPayload]:
    torch = sys.modules["torch"]
    if tensor.requires_grad:
        tensor = tensor.detach()
    if tensor.is_meta:
        raise NotRecordable("a meta tensor has no values")
    if tensor.layout != torch.strided:
        raise NotRecordable(f"a tensor of layout {tensor.layout} is not one block of values; record its parts")
    if tensor.is_quantized:
        raise NotRecordable("a quantized tensor; record tensor.int_repr() or tensor.dequantize()")
    dtype = _dtypes.get(tensor.dtype) or TORCH.get(str(tensor.dtype).removeprefix("torch."))
    if dtype is None:
        raise NotRecordable(f"no name for the dtype {tensor.dtype}")
    _dtypes[tensor.dtype] = dtype
    more: Line = {}
    plain = has_address(tensor, torch)
    if not tensor.is_cpu:
        more["dev"] = str(tensor.device)
        plain = False
    if not tensor.is_contiguous():
        more["stride"] = list(tensor.stride())
        plain = False
    if tensor.is_conj() or tensor.is_neg():
        tensor = tensor.resolve_conj().resolve_neg()
    return Facts(dtype, list(tensor.shape), more), TorchPayload(tensor, plain)


_dtypes: dict[Any, str] = {}  # torch's to ours, as they are met


def _numpy(value: Any) -> tuple[Facts, BufferPayload]:
    try:
        import numpy
    except ImportError:
        raise NotRecordable(f"a {type(value).__name__}: NumPy, which could read it, is not installed") from None
    more: Line = {"dev": str(next(iter(value.devices())))} if is_jax(value) and hasattr(value, "devices") else {}
    try:
        array = numpy.asarray(value)
    except Exception as error:  # whatever a foreign class does when asked for its values
        raise NotRecordable(f"a {type(value).__name__} gives no array: {error}") from error
    dtype = NUMPY.get(array.dtype.name)
    if dtype is None:
        raise NotRecordable(f"a {type(value).__name__} of dtype {array.dtype}, which is not of numbers")
    shape = list(array.shape)
    array = numpy.ascontiguousarray(array)
    if array.dtype.byteorder == ">" or (array.dtype.byteorder == "=" and sys.byteorder == "big"):
        array = array.astype(array.dtype.newbyteorder("<"))
    # Dtypes of ml_dtypes have no buffer format: their bytes do.
    raw = array.reshape(-1).view(numpy.uint8) if array.size else numpy.empty(0, numpy.uint8)
    return Facts(dtype, shape, more), BufferPayload(raw.data, raw)
