"""`capture` of a torch module: hooks on every module by its path, put on for the length of a `with` and taken off again.

A module's outputs are recorded when it returns, in the order modules return. Its inputs are recorded only when they are
nobody's recorded output (what is computed between modules: a residual sum, a reshaped head), so what each record was
computed from is in the run, and its `inputs` say where. The model's own inputs are always recorded.
"""

from __future__ import annotations

import contextlib
import functools
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch

from .._recorder import Run
from . import parallel
from .flow import Flow
from .functions import FunctionMode
from .ops import OpMode
from .tree import tensors

_busy = threading.local()  # `on` while any recorder calls torch in this thread: none of them records that

# Wrappers whose names say nothing about the model.
WRAPPERS = ("_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module")


class Watched:
    """A module of the model, and what does not change while it is captured."""

    __slots__ = ("cls", "kept", "module", "name", "root", "stream", "weights")

    def __init__(self, name: str, module: torch.nn.Module, *, root: bool, kept: bool) -> None:
        self.name = name
        self.module = module
        self.cls = type(module).__name__
        self.root = root
        self.kept = kept
        self.stream = reads_the_stream(module)
        #: The records of its weights.
        self.weights: list[int] = []


class Frame:
    """A module that is running."""

    __slots__ = ("began_ns", "call", "clock_ns", "inputs", "module", "name", "paused_ns", "watched")

    def __init__(self, watched: Watched, call: int) -> None:
        self.watched = watched
        self.name = watched.name
        self.module = watched.module
        self.call = call
        self.began_ns = 0  # since 1970
        self.clock_ns = 0
        self.paused_ns = 0
        self.inputs: list[int] = []


class TorchRun(Run):
    """A run of one torch module."""

    def __init__(
        self,
        model: torch.nn.Module,
        path: Any,
        *,
        ops: bool,
        grads: bool,
        params: bool,
        attention: bool,
        inputs: bool,
        flow: bool,
        step_per_call: bool,
        **settings: Any,
    ) -> None:
        about = {"framework": {"name": "torch", "version": torch.__version__}, "model": type(model).__name__, **settings.pop("about", {})}
        super().__init__(path, about=about, **settings)
        self.flow = Flow()
        self.busy = _busy
        self._model = model
        self._ops, self._grads, self._params, self._attention = ops, grads, params, attention
        self.takes_inputs, self._follow, self._step_per_call = inputs, flow, step_per_call
        self.paused_ns = 0
        self._root_calls = 0
        #: Name and role of what `find` recorded.
        self._found: dict[int, tuple[str, str]] = {}
        self._stack = contextlib.ExitStack()

    # On and off

    def __enter__(self) -> TorchRun:
        super().__enter__()
        try:
            self._attach()
        except BaseException:
            self.__exit__(*sys.exc_info())
            raise
        return self

    def __exit__(self, *error: object) -> None:
        try:
            self._stack.close()
        finally:
            super().__exit__(*error)

    def _attach(self) -> None:
        modules = [
            Watched(name, module, root=module is self._model, kept=self.keep(name or "model")) for module, name in module_names(self._model)
        ]
        self._root = next(watched for watched in modules if watched.root)
        if self._params:
            self._record_weights(modules)
        for watched in modules:
            self._hold(watched.module.register_forward_pre_hook(functools.partial(self._before, watched), with_kwargs=True))
            self._hold(watched.module.register_forward_hook(functools.partial(self._after, watched), with_kwargs=True))
        self._stack.enter_context(forward_called_directly(self._model, self._enter_root, self._leave_root))
        if self._grads:
            self._watch_weight_gradients(modules)
        if self._ops:
            self._stack.enter_context(OpMode(self))
        if self._attention or self._follow:
            self._stack.enter_context(FunctionMode(self, attention=self._attention, flow=self._follow))
        if "torch._dynamo" in sys.modules:
            # Compiled code would skip the hooks or be compiled anew around each of them.
            self._stack.enter_context(torch.compiler.set_stance("force_eager"))

    def _hold(self, handle: Any) -> None:
        self._stack.callback(handle.remove)

    # Modules

    @property
    def frames(self) -> list[Frame]:
        """The modules that run in this thread, outermost first."""
        try:
            return self._threads.frames
        except AttributeError:
            frames: list[Frame] = []
            self._threads.frames = frames
            return frames

    def _before(self, watched: Watched, module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if in_backward():  # activation checkpointing computes it again
            return
        with self.aside():
            frames = self.frames
            if watched.root:
                frames.clear()  # what an exception left
                self._next_root_call()
            # Every module is counted, also when this step is not recorded.
            frame = Frame(watched, self.next_call(watched.name, "module", ""))
            frames.append(frame)
            # Of one that is not kept nobody asks what it was given.
            if watched.kept and self.recording:
                values = tensors(args) + tensors(kwargs) if kwargs else tensors(args)
                inputs = [record for arg, value in values for record in self._input(frame, arg, value)]
                frame.inputs = list(dict.fromkeys(inputs + watched.weights))
        frame.began_ns, frame.clock_ns, frame.paused_ns = time.time_ns(), time.perf_counter_ns(), self.paused_ns

    def _next_root_call(self) -> None:
        if self._step_per_call and self._root_calls:
            self.step()
        self._root_calls += 1

    def _input(self, frame: Frame, arg: str, value: torch.Tensor) -> tuple[int, ...]:
        """The records that an input is, or comes from. What is nobody's output is recorded as this module's input."""
        root, inside = frame.watched.root, parallel.local(value)
        if not root and not self.takes_inputs:
            return self.flow.made_from(inside)
        known, sources = self.flow.look(inside)
        if known is not None and not root and not frame.watched.stream:
            return (known,)
        facts = parallel.facts(value, frame.module, "in")
        record = self.save(frame.name, value, role="in", arg=arg, call=frame.call, same=known, inputs=list(sources), **facts)
        # A second name for a record is not what anything is computed from.
        return sources if record is None or (known is not None and not root) else (record,)

    def _after(self, watched: Watched, module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
        if in_backward():
            return
        ended, paused = time.perf_counter_ns(), self.paused_ns
        with self.aside():
            frame = self._leave(module)
            if frame is None or not self.recording:
                return
            took = ended - frame.clock_ns - (paused - frame.paused_ns)
            self.span(watched.name, frame.began_ns, took, call=frame.call, cls=watched.cls)
            if watched.kept:
                for arg, value in tensors(output):
                    self._output(frame, arg, value, took)

    def _leave(self, module: torch.nn.Module) -> Frame | None:
        """The frame of a module that returns. Modules below it that raised are gone too."""
        frames = self.frames
        while frames:
            frame = frames.pop()
            if frame.module is module:
                return frame
        return None

    def _output(self, frame: Frame, arg: str, value: torch.Tensor, took: int) -> None:
        facts = parallel.facts(value, frame.module, "out")
        same, sources = self.flow.look(parallel.local(value))
        # A module without modules computes from what it is given; one with modules from what they returned, where that is known.
        leaf = not frame.module._modules or next(frame.module.children(), None) is None
        inputs = frame.inputs if leaf or not sources else list(sources)
        self.save(
            frame.name, value, role="out", arg=arg, call=frame.call, same=same, inputs=inputs,
            phase="fwd", cls=frame.watched.cls, ts=frame.began_ns, dur=took, **facts,
        )  # fmt: skip
        if self._grads and value.requires_grad:
            self._watch_gradient(frame, arg, value)

    def _enter_root(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """`model.forward(x)` was called. Returns whether that passed the hooks by."""
        if self.frames or in_backward():
            return False
        self._before(self._root, self._model, args, kwargs)
        return True

    def _leave_root(self, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
        self._after(self._root, self._model, args, kwargs, output)

    # Weights and gradients

    def _record_weights(self, modules: list[Watched]) -> None:
        with self.aside():
            for watched in modules:
                module, path = watched.module, watched.name
                own = [*module.named_parameters(recurse=False), *module.named_buffers(recurse=False)]
                for name, value in own:
                    full = f"{path}.{name}" if path else name
                    facts = parallel.facts(value, module, "param")
                    record = self.save(full, value, role="param", call=0, same=self.flow.same(parallel.local(value)), phase="param", **facts)
                    if record is not None:
                        watched.weights.append(record)

    def _watch_gradient(self, frame: Frame, arg: str, value: torch.Tensor) -> None:
        name, call = frame.name, frame.call

        def keep(gradient: torch.Tensor) -> None:
            with self.aside():
                facts = parallel.facts(gradient, None, "grad")
                self.save(name, gradient, role="grad", arg=arg, call=call, same=self.flow.same(parallel.local(gradient)), phase="bwd", **facts)

        handle = value.register_hook(keep)
        self._hold(handle)

    def _watch_weight_gradients(self, modules: list[Watched]) -> None:
        def keep(name: str, weight: torch.Tensor) -> None:
            if weight.grad is not None:
                with self.aside():
                    self.save(name, weight.grad, role="param_grad", phase="bwd", **parallel.facts(weight.grad, None, "grad"))

        for watched in modules:
            for name, weight in watched.module.named_parameters(recurse=False):
                if weight.requires_grad:
                    full = f"{watched.name}.{name}" if watched.name else name
                    self._hold(weight.register_post_accumulate_grad_hook(functools.partial(keep, full)))

    # What all of them share

    def save(self, name: str, value: torch.Tensor, *, in_place: bool = False, **facts: Any) -> int | None:
        """Records a tensor and remembers its storage. A tensor that torch cannot read is a record that says so."""
        local = parallel.local(value)
        if local is not value and (mesh := parallel.mesh(value)):
            self._place_in(mesh)
        record = self.tensor(name, local, **facts)
        # What is the same as an earlier record goes on being known as that one.
        if record is not None and facts.get("same") is None:
            self.flow.add(local, record, in_place=in_place)
        return record

    def _place_in(self, mesh: tuple[dict[str, int], dict[str, int]]) -> None:
        if not self.rank.coords:
            self.rank.coords, self.rank.mesh = mesh
            self.rank.write(self.path / f"rank-{self.rank.number:05}")

    def module(self) -> str:
        return self.frames[-1].name if self.frames else ""

    def depth(self) -> int:
        return len(self.frames)

    def tap(self, name: str, value: Any, *, role: str = "tap", dims: str | None = None) -> int | None:
        """`twinscope.record` while this model is being recorded: a tensor of it is known by its storage."""
        if not isinstance(value, torch.Tensor):
            return super().tap(name, value, role=role, dims=dims)
        with self.aside():
            facts = parallel.facts(value, None, "tap") | ({"dims": dims} if dims else {})
            inside = parallel.local(value)
            same, sources = self.flow.look(inside)
            if same is not None and self._found.get(same) == (name, role):
                return same  # attention weights that were found before they were told
            return self.save(name, value, role=role, same=same, inputs=list(sources), **facts)

    def find(self, name: str, value: torch.Tensor, *, role: str, **facts: Any) -> int | None:
        """Records what a function was given or made that no module returns."""
        inside = parallel.local(value)
        same, sources = self.flow.look(inside)
        record = self.save(name, value, role=role, phase="fwd", **{"same": same, "inputs": list(sources), **facts})
        if record is not None:
            self._found[record] = (name, role)
        return record

    def aside(self) -> Aside:
        return Aside(self)


class Aside:
    """While the recorder works: what it calls is not recorded nor differentiated, and its time is not the model's.

    Entered several times for every module, so it is no generator.
    """

    __slots__ = ("_began", "_before", "_functions", "_grad", "_run")

    def __init__(self, run: TorchRun) -> None:
        self._run = run

    def __enter__(self) -> None:
        self._began = time.perf_counter_ns()
        busy = self._run.busy
        self._before, busy.on = getattr(busy, "on", False), True
        self._functions: Any = torch._C.DisableTorchFunction()
        self._functions.__enter__()
        self._grad = torch.is_grad_enabled()
        torch._C._set_grad_enabled(False)

    def __exit__(self, *error: object) -> None:
        torch._C._set_grad_enabled(self._grad)
        self._functions.__exit__(*error)
        self._run.busy.on = self._before
        if not self._before:
            self._run.paused_ns += time.perf_counter_ns() - self._began


def reads_the_stream(module: torch.nn.Module) -> bool:
    """Norms of transformers read the residual stream. Their input is recorded also when another module returned it (that costs a line, no bytes):
    where one run adds something between modules and the other does not, both have a tensor that shows it."""
    name = type(module).__name__
    return "Norm" in name and "BatchNorm" not in name


def in_backward() -> bool:
    return torch._C._current_graph_task_id() != -1


def module_names(model: torch.nn.Module) -> Iterator[tuple[torch.nn.Module, str]]:
    """Each module once, by its path without the names of wrappers."""
    wrapped = isinstance(model, (torch.nn.DataParallel, torch.nn.parallel.DistributedDataParallel))
    seen: set[str] = set()
    for path, module in model.named_modules():
        parts = [part for part in path.split(".") if part not in WRAPPERS]
        if wrapped and parts and parts[0] == "module":
            parts = parts[1:]
        name = ".".join(parts)
        # A wrapper and what it wraps have one name; the outer one is called.
        if name not in seen:
            seen.add(name)
            yield module, name


@contextlib.contextmanager
def forward_called_directly(
    model: torch.nn.Module,
    enter: Callable[[tuple[Any, ...], dict[str, Any]], bool],
    leave: Callable[[tuple[Any, ...], dict[str, Any], Any], None],
) -> Iterator[None]:
    """Hooks do not see `model.forward(x)`, which serving engines call; a wrapper of it does."""
    forward = model.forward
    own = "forward" in model.__dict__

    @functools.wraps(forward)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        missed = enter(args, kwargs)
        output = forward(*args, **kwargs)
        if missed:
            leave(args, kwargs, output)
        return output

    try:
        model.forward = wrapper  # type: ignore[method-assign]
    except (AttributeError, RuntimeError):  # a scripted module cannot be wrapped
        yield
        return
    try:
        yield
    finally:
        if own:
            model.forward = forward  # type: ignore[method-assign]
        else:
            del model.forward
