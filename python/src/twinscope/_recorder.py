"""The recorder: gives records their numbers, keeps or drops them, hands them to the writer.

It knows no framework. `_torch` drives it from hooks, `record` by hand.
"""

from __future__ import annotations

import contextlib
import math
import os
import threading
import time
import warnings
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal, TypeVar

from . import _arrays
from ._about import Rank, prepare
from ._channel import Channel, open_channel, reap
from ._filters import Names, Steps, name_filter, step_filter
from ._stats import stats_of
from ._writer import Line

T = TypeVar("T")
Role = Literal["tap", "in", "out", "param", "grad", "param_grad", "attn", "op"]
OnFull = Literal["continue", "stop"]


class CaptureError(RuntimeError):
    """A run could not be recorded, or not go on being recorded."""


class Run:
    """A run that is being recorded, or was.

    What `capture` returns. Usable as a source of `diff`, `ls` and `stats` at any moment; `path` is its folder.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        label: str | None = None,
        include: Names = None,
        exclude: Names = None,
        steps: Steps = None,
        stats_only: Names | bool = False,
        rank: int | None = None,
        world_size: int | None = None,
        overwrite: bool = False,
        on_full: OnFull = "continue",
        sync: bool = False,
        fsync: bool = False,
        buffer: int = 128 << 20,
        about: Line | None = None,
    ) -> None:
        if on_full not in ("continue", "stop"):
            raise ValueError(f'on_full is "continue" or "stop", not {on_full!r}')
        self.path = Path(path).absolute()
        self.rank = Rank.here(rank, world_size)
        self.step_number = 0
        self.records = 0
        self.closed = False
        self.keep = name_filter(include, exclude)
        self._keep_step = step_filter(steps)
        # Of which names only the statistics are kept.
        self._bare: Callable[[str], bool] | None = None
        if stats_only is not False:
            self._bare = name_filter(None if stats_only is True else stats_only, None)
        self._on_full = on_full
        self._told = False
        self._lock = threading.RLock()
        self._calls: dict[tuple[str, str, str], int] = {}
        self._threads = threading.local()
        self._pid = os.getpid()
        folder = prepare(self.path, self.rank, label or self.path.name, about or {}, overwrite)
        try:
            self._channel: Channel = open_channel(folder, sync=sync, fsync=fsync, buffer=buffer)
        except OSError as error:
            raise CaptureError(f"cannot begin a run in {folder}: {error}") from error
        self.recording = self._keep_step(0)
        _open.add(self)
        self.memory()

    # What is recorded

    def tensor(
        self,
        name: str,
        value: Any,
        *,
        role: str = "tap",
        arg: str = "",
        call: int | None = None,
        inputs: list[int] | None = None,
        same: int | None = None,
        **facts: Any,
    ) -> int | None:
        """Records a value and returns its number in this run, `None` when it is not kept."""
        if not self._wanted(name):
            return None
        with self._lock:
            number = self.records
            if call is None:
                call = self.next_call(name, role, arg)
            line: Line = {"k": "t", "i": number, "name": name, "role": role, "arg": arg, "call": call, "step": self.step_number}
            for key, fact in facts.items():
                if fact is not None:
                    line[key] = fact
            if "ts" not in line:
                line["ts"] = time.time_ns()
            if inputs:
                line["inputs"] = inputs
            payload = self._values(line, value, same)
            try:
                self._channel.tensor(line, payload)
            except (RuntimeError, TypeError, ValueError, NotImplementedError) as error:
                # Not this program's fault, and no reason for the model to stop: a tensor that only looks like one.
                line["err"] = f"its values could not be read: {error}"
                self._channel.tensor(line, None)
            self.records += 1
            self._check()
            return number

    def tap(self, name: str, value: Any, *, role: str = "tap", dims: str | None = None) -> int | None:
        """What `twinscope.record` was given."""
        return self.tensor(name, value, role=role, dims=dims)

    def _values(self, line: Line, value: Any, same: int | None) -> Any:
        try:
            facts, payload = _arrays.describe(value)
            facts.put(line)
            if same is not None:
                line["same"] = same
                return None
            if self._bare is not None and self._bare(line["name"] or "model"):
                line["stats"] = stats_of(value, facts)
                line["err"] = "only its statistics were asked for"
                return None
            return payload
        except (_arrays.NotRecordable, RuntimeError, NotImplementedError) as error:
            line.setdefault("dtype", "U8")
            line.setdefault("shape", [int(size) for size in getattr(value, "shape", ())])
            line["err"] = str(error)
            return None

    def _wanted(self, name: str) -> bool:
        if self.closed or not self.recording or os.getpid() != self._pid:
            return False
        return self.keep(name or "model")

    def next_call(self, name: str, role: str, arg: str) -> int:
        """How often this one was seen before in this step."""
        key = (name, role, arg)
        with self._lock:
            call = self._calls[key] = self._calls.get(key, -1) + 1
        return call

    def span(self, name: str, began_ns: int, took_ns: int, **facts: Any) -> None:
        """Records how long something took."""
        thread = threading.get_ident()
        self._event({"k": "x", "name": name, "step": self.step_number, "ts": began_ns, "dur": took_ns, **facts, "thread": thread})

    def note(self, name: str, value: Any) -> None:
        """Records anything JSON can hold: tokens, a prompt, a loss. NaN and infinities are kept as those words, other things as their text."""
        self._event({"k": "m", "name": str(name), "step": self.step_number, "ts": time.time_ns(), "value": plain(value)})

    def memory(self) -> None:
        """Records how much memory the process has, and the accelerator, where torch knows."""
        sample = memory_sample()
        if sample:
            self._event({"k": "a", "name": "", "step": self.step_number, "ts": time.time_ns(), **sample})

    def step(self) -> None:
        """Begins the next step: the next batch, the next token. Calls are counted from 0 again."""
        if self.closed or os.getpid() != self._pid:
            return
        with self._lock:
            self.memory()
            self.step_number += 1
            self._calls.clear()
            self.recording = self._keep_step(self.step_number)
            self._event({"k": "s", "step": self.step_number, "ts": time.time_ns()})

    def _event(self, line: Line) -> None:
        if self.closed or os.getpid() != self._pid:
            return
        with self._lock:
            self._channel.event(line)

    # Where in the program something is recorded

    @contextlib.contextmanager
    def within(self, name: str) -> Iterator[None]:
        """Names below this one, and how long it took."""
        full = self.path_of(name)
        self._scopes.append((full, self.depth()))
        began, clock = time.time_ns(), time.perf_counter_ns()
        try:
            yield
        finally:
            self._scopes.pop()
            if self.recording:
                self.span(full, began, time.perf_counter_ns() - clock)

    def path_of(self, name: str) -> str:
        """The full path of a name that is recorded here."""
        scopes = self._scopes
        inside = scopes[-1][0] if scopes and scopes[-1][1] == self.depth() else self.module()
        # Text itself, not a subclass as NumPy's: it goes to another process as what it is.
        return f"{inside}.{name}" if inside and name else inside or str(name)

    @property
    def _scopes(self) -> list[tuple[str, int]]:
        """The spans that are open in this thread, with the number of modules around each."""
        if not hasattr(self._threads, "scopes"):
            self._threads.scopes = []
        scopes: list[tuple[str, int]] = self._threads.scopes
        return scopes

    def module(self) -> str:
        """The module that runs; a recorder without a model knows none."""
        return ""

    def depth(self) -> int:
        return 0

    # How it ends

    def flush(self) -> None:
        """Returns when everything recorded so far is in the run's files."""
        if not self.closed and os.getpid() == self._pid:
            with self._lock:
                self._channel.flush()
                self._check()

    def close(self) -> None:
        """Writes what is left and closes the run. Says so when something is missing from it."""
        if self.closed or os.getpid() != self._pid:
            return
        with self._lock:
            self.memory()
            self.closed = True
            _open.discard(self)
            self._channel.close()
            self._check()

    @property
    def dropped(self) -> int:
        """Tensors whose values did not fit on the disk."""
        return self._channel.dropped()

    def _check(self) -> None:
        problem = self._channel.problem()
        if problem is None or self._told:
            return
        self._told = True
        text = f"{problem}; what was recorded before is readable"
        if self._on_full == "stop":
            raise CaptureError(f"{text}. Free some space, record less (include=, steps=), or go on without (on_full='continue')")
        warnings.warn(f"twinscope: {text}, what does not fit is left out, the model runs on", RuntimeWarning, stacklevel=3)

    def __enter__(self) -> Run:
        _active.append(self)
        return self

    def __exit__(self, *_: object) -> None:
        if self in _active:
            _active.remove(self)
        self.close()

    def __fspath__(self) -> str:
        return str(self.path)

    def __repr__(self) -> str:
        return f"<twinscope run {str(self.path)!r}: {self.records} records, {'closed' if self.closed else 'recording'}>"


_active: list[Run] = []
_open: weakref.WeakSet[Run] = weakref.WeakSet()


def close_all() -> None:
    """Before the interpreter ends: a run that nobody closed is closed."""
    for run in list(_open):
        run.close()
    reap(wait=True)


def record(name: str, value: T, *, role: Role = "tap", dims: str | None = None) -> T:
    """Records a tensor, an array or a number under a name, and returns it.

    Does nothing unless a `capture` is active, so it can stay in the code. Inside a module that is being captured, and inside a
    `span`, the name is below theirs. Inside `jax.jit` it records when the compiled code runs.

    Args:
        name: what it is called; may be empty inside a module or span, with a role that says what of it this is.
        value: a torch tensor, a NumPy or JAX array, anything NumPy can read, or a number.
        role: what it is to its module: `"attn"` for attention weights, `"out"` for an output; `"tap"` when it is just a value.
        dims: what the dimensions are and how they are split over ranks, like `"b s h[tp]"`.
    """
    if _active:
        if _arrays.is_jax_tracer(value):
            import jax

            # The names of spans are those of tracing, not of running.
            places = [(run, run.path_of(name)) for run in _active]
            jax.debug.callback(lambda now: _record_at(places, now, role, dims), value, ordered=True)
        else:
            _record_at([(run, run.path_of(name)) for run in _active], value, role, dims)
    return value


def _record_at(places: list[tuple[Run, str]], value: Any, role: str, dims: str | None) -> None:
    for run, name in places:
        run.tap(name, value, role=str(role), dims=None if dims is None else str(dims))


@contextlib.contextmanager
def span(name: str) -> Iterator[None]:
    """A part of the program: what is recorded inside is named below it, and how long it took is kept."""
    with contextlib.ExitStack() as stack:
        for run in list(_active):
            stack.enter_context(run.within(name))
        yield


def step() -> None:
    """Begins the next step of every active capture: the next batch, the next token."""
    for run in list(_active):
        run.step()


def note(name: str, value: Any) -> None:
    """Keeps a fact with every active capture: tokens, a prompt, a loss. Anything JSON can hold."""
    for run in list(_active):
        run.note(name, value)


def plain(value: Any) -> Any:
    """What JSON can hold of a value: a loss that is NaN is no reason to stop a training."""
    if value is None or isinstance(value, bool):
        return value
    # Numbers and text themselves, not subclasses of them.
    if isinstance(value, str):
        return str(value)
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return str(value)


def memory_sample() -> Line:
    import sys

    sample: Line = {}
    try:
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith(("VmRSS:", "VmHWM:")):
                sample["rss" if line.startswith("VmRSS") else "rss_peak"] = int(line.split()[1]) * 1024
    except OSError:
        pass
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        sample |= {"live": torch.cuda.memory_allocated(), "live_peak": torch.cuda.max_memory_allocated()}
    return sample
