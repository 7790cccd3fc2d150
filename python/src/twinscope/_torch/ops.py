"""Every operation: a dispatch mode that sees what torch computes below modules and autograd."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from . import parallel
from .tree import tensors

if TYPE_CHECKING:
    from .session import TorchRun


class OpMode(TorchDispatchMode):
    """Records the results of operations under the module that runs them. Views are no results: they share their base's storage."""

    def __init__(self, run: TorchRun) -> None:
        super().__init__()
        self._run = run

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        run = self._run
        if getattr(run.busy, "on", False) or not run.recording:
            return func(*args, **kwargs)
        with run.aside():
            inputs = run.flow.made_from_all(parallel.local(value) for _, value in (*tensors(args), *tensors(kwargs)))
        output = func(*args, **kwargs)
        with run.aside():
            self._record(func, inputs, output)
        return output

    def _record(self, func: Any, inputs: list[int], output: Any) -> None:
        run = self._run
        module = run.module()
        returns = func._schema.returns
        op = str(func.overloadpacket)
        in_place = func._schema.is_mutable
        made = [(arg, value) for arg, value in tensors(output) if in_place or not _is_view(returns, arg)]
        if not made:
            return
        call = run.next_call(module, "op", op)
        phase = "bwd" if torch._C._current_graph_task_id() != -1 else "fwd"
        for arg, value in made:
            facts = parallel.facts(value, None, "op")
            run.save(module, value, in_place=in_place, role="op", arg=arg, call=call, op=op, inputs=inputs, phase=phase, **facts)


def _is_view(returns: Any, arg: str) -> bool:
    at = int(arg.split(".")[0]) if arg else 0
    # A list of results is one return in the schema.
    alias = returns[min(at, len(returns) - 1)].alias_info
    return alias is not None and not alias.is_write
