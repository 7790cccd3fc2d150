"""What happens between modules: a function mode that sees every call of torch's functions, and records next to nothing.

It follows data through them (a residual sum, a reshape, a softmax), so that what a module is given is known to come from
what others returned, and it looks for attention and for choices: see `attention`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch.overrides import TorchFunctionMode

from . import attention
from .parallel import local
from .tree import flat

if TYPE_CHECKING:
    from .session import TorchRun


class FunctionMode(TorchFunctionMode):
    def __init__(self, run: TorchRun, *, attention: bool, flow: bool) -> None:
        super().__init__()
        self._run = run
        self._attention = attention
        self._flow = flow
        #: By a function's name: whether it changes its first argument, and what looks at it.
        self._kinds: dict[str, tuple[bool, Callable[..., None] | None]] = {}

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        # Called for every function of the model: what is no result of it must cost next to nothing.
        output = func(*args, **kwargs) if kwargs else func(*args)
        run = self._run
        name = getattr(func, "__name__", "")
        if name == "__get__" or not run.recording or getattr(run.busy, "on", False):
            return output
        in_place, look = self._kinds.get(name) or self._kind(name)
        if not in_place and not isinstance(output, (torch.Tensor, tuple, list)):
            return output  # a shape, a dtype, a number
        if look is None and not in_place and self._flow and type(output) is torch.Tensor:
            began = time.perf_counter_ns()
            followed = run.flow.follow(output, args, kwargs)
            run.paused_ns += time.perf_counter_ns() - began
            if followed:
                return output
        with run.aside():
            if self._flow:
                self._follow(args, kwargs, output, in_place)
            if look is not None and run.frames:
                look(run, output, *args, **(kwargs or {}))
        return output

    def _kind(self, name: str) -> tuple[bool, Callable[..., None] | None]:
        in_place = name == "__setitem__" or (name.endswith("_") and not name.endswith("__")) or name in IN_PLACE
        kind = in_place, attention.WATCHED.get(name) if self._attention else None
        self._kinds[name] = kind
        return kind

    def _follow(self, args: Any, kwargs: Any, output: Any, in_place: bool) -> None:
        flow = self._run.flow
        if in_place and args and isinstance(args[0], torch.Tensor):
            made = [local(args[0])]
        else:
            made = [local(value) for value in flat((output,))]
        if not in_place:
            made = [value for value in made if not flow.knows(value)]  # the others are views
        if made:
            given = [local(value) for value in flat((*args, *kwargs.values()) if kwargs else args)]
            sources = flow.made_from_all(given)
            for value in made:
                flow.derive(value, sources, in_place=in_place)


# `x += y` has no name that ends like other functions in place.
IN_PLACE = {f"__i{name}__" for name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "and", "or", "xor", "lshift", "rshift")}
