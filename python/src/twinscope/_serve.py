"""The other end of `_channel`: takes records out of the ring and writes them.

The process it runs in is started for every capture, beside a model that is about to run: it imports next to nothing.
"""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import signal
import sys

from ._writer import Keeper, RunWriter

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def serve(keeper: Keeper, get: Any, put: Any, memory: Any) -> None:
    """The writer's loop, in whatever it runs."""
    view = memoryview(memory(0))
    told = 0
    while True:
        message = get()
        kind = message[0]
        if kind == "t":
            where = message[2]
            *events, line = message[1]
            for event in events:
                keeper.event(event)
            keeper.tensor(line, None if where is None else [view[where[0] : where[0] + where[1]]])
            if where is not None and where[1]:
                put(["k"])
        elif kind == "e":
            for event in message[1]:
                keeper.event(event)
        elif kind == "r":
            view = memoryview(memory(message[1]))
        elif kind == "c":
            keeper.close()
        elif kind == "lost":
            return keeper.abandon()
        if keeper.dropped != told or (kind == "c" and keeper.why):
            told = keeper.dropped
            put(["d", told, keeper.why])
        if kind == "f":
            put(["f"])
        if kind == "c":
            return


def main(text: str) -> None:
    """The writer's process. Its input ends when the model's process does, however it does."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    options = json.loads(text)
    sys.path[:] = options["path"]
    with contextlib.suppress(OSError, AttributeError):
        # A message does not take the model's core away at once; where cores are free it makes no difference.
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
    keeper = Keeper(RunWriter(options["folder"], fsync=options["fsync"]))
    source = os.fdopen(0, "rb", buffering=1 << 16)

    def get() -> list[Any]:
        line = source.readline()
        # Half a line is a record that was not handed over.
        return json.loads(line) if line.endswith(b"\n") else ["lost"]

    def put(answer: list[Any]) -> None:
        with contextlib.suppress(OSError):  # nobody is there any more to hear it
            os.write(1, json.dumps(answer).encode() + b"\n")

    def memory(_: int) -> mmap.mmap:
        return mmap.mmap(options["ring"], os.fstat(options["ring"]).st_size)

    serve(keeper, get, put, memory)
