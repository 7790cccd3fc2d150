"""`diff`, `ls`, `stats`, `show`, `explain`, `serve`: the program's commands as functions.

A source is a path, a run that is being or was recorded, or a dict of arrays, which is written to a temporary run first.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Mapping
from html import escape
from pathlib import Path
from typing import Any, Union

from ._binary import Error, ask, binary, flags
from ._recorder import Run
from ._report import Listing, Report, TensorInfo, TensorStats, read

#: Anything with names and values: a `state_dict()`, outputs you kept.
Tensors = Mapping[str, Any]
Source = Union[str, "os.PathLike[str]", Tensors, Run]


def diff(reference: Source, candidate: Source | None = None, **settings: Any) -> Report:
    """Compares two sources: where they diverge, bug or rounding, and why.

    Without a candidate, every tensor of the source against every other. `settings` are the flags of `twinscope diff` with
    underscores: `rtol=1e-3`, `only=["layers.*"]`, `allow_missing=True`, `noise=run`; `map` may be a dict of names and `layout` one
    of steps. Differing is an answer; `twinscope.Error` says that there is none.
    """
    with _Paths() as paths:
        sources = [paths.of(reference, "reference")] + ([] if candidate is None else [paths.of(candidate, "candidate")])
        answer = ask("diff", *sources, *flags(paths.settings(settings)))
    for side, given in (("reference", reference), ("candidate", candidate)):
        if isinstance(given, Mapping):
            answer[side] = f"dict of {len(given)}"
    return read(Report, answer)


def explain(reference: Source, candidate: Source, name: str, **settings: Any) -> dict[str, Any]:
    """One pair in depth: every hypothesis tried, and what each explains. The document of `twinscope explain --json`."""
    with _Paths() as paths:
        answer: dict[str, Any] = ask(
            "explain", paths.of(reference, "reference"), paths.of(candidate, "candidate"), name, *flags(paths.settings(settings))
        )
        return answer


def ls(source: Source, **settings: Any) -> Listing[TensorInfo]:
    """What a source holds, in execution order: names, dtypes, shapes. `hash=True` and `meta=True` tell more."""
    with _Paths() as paths:
        return read(Listing[TensorInfo], ask("ls", paths.of(source, "source"), *flags(settings)))


def stats(source: Source, **settings: Any) -> Listing[TensorStats]:
    """Every tensor measured: count, mean, std, min, max, NaN, Inf, zeros, norm."""
    with _Paths() as paths:
        return read(Listing[TensorStats], ask("stats", paths.of(source, "source"), *flags(settings)))


def show(source: Source, what: str | None = None, **settings: Any) -> dict[str, Any]:
    """Values, in NumPy's slice syntax: `show("run_a", "layers.0[0, :, 5:9]")`. The document of `twinscope show --json`."""
    with _Paths() as paths:
        answer: dict[str, Any] = ask("show", paths.of(source, "source"), *([] if what is None else [what]), *flags(settings))
        return answer


class Server:
    """The web app, running until `stop` or the end of the program."""

    def __init__(self, process: subprocess.Popen[bytes], url: str, paths: _Paths) -> None:
        self.url = url
        self._process = process
        self._paths = paths

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    def wait(self) -> None:
        """Returns when the server does; Ctrl-C stops it."""
        try:
            self._process.wait()
        except KeyboardInterrupt:
            self.stop()

    def stop(self) -> None:
        if self.running:
            self._process.terminate()
            try:
                self._process.wait(10)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._paths.close()

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def __del__(self) -> None:
        with contextlib.suppress(Exception):
            self.stop()

    def __repr__(self) -> str:
        return f"<twinscope {self.url} {'running' if self.running else 'stopped'}>"

    def _repr_html_(self) -> str:
        return f'<a href="{escape(self.url)}" target="_blank">twinscope: {escape(self.url)}</a>'


def serve(reference: Source | None = None, candidate: Source | None = None, *, port: int = 0, open: bool = True, **settings: Any) -> Server:
    """Starts the web app on this machine and returns at once; `.url` is where, `.stop()` ends it."""
    paths = _Paths()
    given = [paths.of(source, side) for source, side in ((reference, "reference"), (candidate, "candidate")) if source is not None]
    command = [str(binary()), "serve", *given, f"--port={port}", *([] if open else ["--no-open"]), *flags(settings)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None and process.stderr is not None
    url = process.stdout.readline().decode().strip()
    if not url:
        said = process.stderr.read().decode(errors="replace").strip()
        process.wait()
        paths.close()
        raise Error(said or f"`twinscope serve` ended with {process.returncode}")
    # Nobody reads its warnings from here on; a full pipe would stop it.
    threading.Thread(target=process.stderr.read, daemon=True).start()
    return Server(process, url, paths)


class _Paths:
    """Sources as paths. What was in memory is written to a folder that lives as long as this."""

    def __init__(self) -> None:
        self._folder: tempfile.TemporaryDirectory[str] | None = None

    def of(self, source: Source, side: str) -> str:
        if isinstance(source, Run):
            source.flush()
            return os.fspath(source)
        if isinstance(source, Mapping):
            return self._write(source, side)
        if isinstance(source, (str, os.PathLike)):
            return os.fspath(source)
        raise TypeError(f"a source is a path, a run or a dict of arrays, not a {type(source).__name__}")

    def _write(self, tensors: Tensors, side: str) -> str:
        path = self._fresh() / side
        with contextlib.closing(Run(path, sync=True, rank=0, world_size=1, on_full="stop")) as run:
            for name, value in _flat(tensors):
                run.tensor(name, value)
        return str(path)

    def settings(self, settings: dict[str, Any]) -> dict[str, Any]:
        """Settings that are files to the program may be objects here."""
        settings = dict(settings)
        if isinstance(settings.get("map"), Mapping):
            file = self._fresh() / "map.json"
            file.write_text(json.dumps(dict(settings["map"])))
            settings["map"] = file
        if isinstance(settings.get("layout"), Mapping):
            settings["layout"] = [f"{name}: {steps}" for name, steps in settings["layout"].items()]
        if settings.get("noise") is not None:
            settings["noise"] = self.of(settings["noise"], "noise")
        return settings

    def _fresh(self) -> Path:
        if self._folder is None:
            self._folder = tempfile.TemporaryDirectory(prefix="twinscope-")
        return Path(self._folder.name)

    def close(self) -> None:
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None

    def __enter__(self) -> _Paths:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _flat(tensors: Tensors, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Nested dicts and lists join their keys with a dot, as the program does with files."""
    for key, value in tensors.items():
        name = f"{prefix}.{key}" if prefix else str(key)
        if isinstance(value, Mapping):
            yield from _flat(value, name)
        elif isinstance(value, (list, tuple)) and value and not isinstance(value[0], (int, float, complex)):
            yield from _flat({str(at): item for at, item in enumerate(value)}, name)
        elif value is not None and not isinstance(value, (str, bytes)):
            yield name, value
