"""What happens between modules: a function mode that sees every call of torch's functions, and records next to nothing.

It follows data through them (a residual sum, a reshape, a softmax), so that what a module is given is known to come from
what others returned, and it looks for attention and for choices: see `attention`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.overrides import TorchFunctionMode

from . import attention
from .parallel import local
from .tree import tensors

if TYPE_CHECKING:
    from .session import TorchRun


class FunctionMode(TorchFunctionMode):
    def __init__(self, run: TorchRun, *, attention: bool, flow: bool) -> None:
        super().__init__()
        self._run = run
        self._attention = attention
        self._flow = flow

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        output = func(*args, **kwargs)
        run = self._run
        if not run.recording or getattr(run.busy, "on", False):
            return output
        name = getattr(func, "__name__", "")
        if name == "__get__":
            return output
        in_place = name == "__setitem__" or (name.endswith("_") and not name.endswith("__")) or name in IN_PLACE
        if not in_place and not isinstance(output, (torch.Tensor, tuple, list)):
            return output  # a shape, a dtype, a number
        with run.aside():
            if self._flow:
                self._follow(args, kwargs, output, in_place)
            if self._attention and run.frames and (look := attention.WATCHED.get(name)) is not None:
                look(run, output, *args, **kwargs)
        return output

    def _follow(self, args: Any, kwargs: Any, output: Any, in_place: bool) -> None:
        given = [local(value) for _, value in (tensors(args) + tensors(kwargs) if kwargs else tensors(args))]
        made = [args[0]] if in_place and args and isinstance(args[0], torch.Tensor) else [value for _, value in tensors(output)]
        for value in made:
            self._run.flow.derive(local(value), given, in_place=in_place)


# `x += y` has no name that ends like other functions in place.
IN_PLACE = {f"__i{name}__" for name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "and", "or", "xor", "lshift", "rshift")}
