"""`twinscope.capture`: one line around a model."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from ._filters import Names, Steps
from ._recorder import OnFull, Run

if TYPE_CHECKING:
    import torch


def capture(
    model: torch.nn.Module | str | os.PathLike[str],
    path: str | os.PathLike[str] | None = None,
    *,
    include: Names = None,
    exclude: Names = None,
    ops: bool = False,
    grads: bool = False,
    params: bool = False,
    attention: bool = True,
    inputs: bool = True,
    flow: bool = True,
    steps: Steps = None,
    step_per_call: bool = False,
    stats_only: Names | bool = False,
    rank: int | None = None,
    world_size: int | None = None,
    label: str | None = None,
    overwrite: bool = False,
    on_full: OnFull = "continue",
    sync: bool = False,
    fsync: bool = False,
    buffer: int = 128 << 20,
) -> Run:
    """Records what runs inside the `with`: `with twinscope.capture(model, "run_a"): model(x)`.

    Every module's outputs, in the order modules return, under the module's path; from the second call on with `@1`, `@2`.
    `capture("run_a")` without a model records only what `twinscope.record` is given.

    Args:
        model: any `torch.nn.Module`.
        path: the folder to write. One that holds a run already is an error unless `overwrite`.
        include, exclude: globs (`"layers.0.*"`; `*` matches dots too), compiled regular expressions, or a function of the name.
            The model itself is called `model`.
        ops: also every operation, under the module that runs it.
        grads: also the gradients of outputs and weights, as the backward pass makes them.
        params: also weights and buffers, before anything runs.
        attention: also the attention weights that fused kernels do not return, computed a second time.
        inputs: also what modules are given that no module returned. The model's own inputs are recorded in any case.
        flow: follow data through what happens between modules, so that each record's inputs are known.
        steps: which steps (`twinscope.step()` begins the next): a range, a set, or a function of the number.
        step_per_call: each call of the model is a step of its own: the tokens of a generation.
        stats_only: statistics instead of values, for all or for these names.
        rank, world_size: which process of how many; from `torch.distributed` or the launcher's environment unless told. Ranks that
            are given the same path end up as one run.
        label: what the run is called; the folder's name unless told.
        on_full: what happens when the disk is full: `"continue"` warns once and leaves out what does not fit, `"stop"` raises
            `CaptureError` in the model.
        sync: write before returning to the model, instead of in a process of its own.
        fsync: force each step onto the disk, against a loss of power.
        buffer: bytes that may wait to be written; when they do, the model waits.
    """
    common: dict[str, Any] = {
        "include": include, "exclude": exclude, "steps": steps, "stats_only": stats_only, "rank": rank, "world_size": world_size,
        "label": label, "overwrite": overwrite, "on_full": on_full, "sync": sync, "fsync": fsync, "buffer": buffer,
    }  # fmt: skip
    if isinstance(model, (str, os.PathLike)):
        if path is not None:
            raise TypeError("capture(model, path) takes the model first")
        return Run(model, **common)
    if path is None:
        raise TypeError('capture(model, path): where to? For example capture(model, "run_a")')
    if not hasattr(model, "named_modules"):
        hint = "" if not callable(model) else "; for functions use `with twinscope.capture(path):` and twinscope.record(name, value)"
        raise TypeError(f"capture takes a torch.nn.Module, not a {type(model).__name__}{hint}")
    from ._torch.session import TorchRun

    chosen = {"ops": ops, "grads": grads, "params": params, "attention": attention, "inputs": inputs, "flow": flow}
    return TorchRun(model, path, step_per_call=step_per_call, **chosen, **common)
