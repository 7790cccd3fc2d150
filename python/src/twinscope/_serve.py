"""The other end of `_channel`: takes records out of the ring and writes them.

The process it runs in is started for every capture, beside a model that is about to run: it imports next to nothing.
"""

from __future__ import annotations

import marshal
import mmap
import os
import sys

from ._writer import Keeper, RunWriter, encode

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def pack(message: list[Any]) -> bytes:
    """A message between the two processes, which run the same interpreter: its length, then `marshal`'s bytes."""
    try:
        body = marshal.dumps(message)
    except ValueError:  # something that is not plain: JSON's form of it is
        import json

        body = marshal.dumps(json.loads(encode(message)))
    return len(body).to_bytes(4, "little") + body


def unpack(data: bytes) -> tuple[list[Any], int] | None:
    """The first message and where the next begins; `None` while it is not whole."""
    end = 4 + int.from_bytes(data[:4], "little")
    return (marshal.loads(data[4:end]), end) if len(data) >= max(end, 4) else None


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
            put(["c"])
            return


def main() -> None:
    """The writer's process. Its input ends when the model's process does, however it does."""
    import _signal  # type: ignore[import-not-found]  # what `signal` is made of, without what makes it slow to import

    _signal.signal(_signal.SIGINT, _signal.SIG_IGN)
    source = os.fdopen(0, "rb", buffering=1 << 16)

    def get() -> list[Any]:
        size = source.read(4)
        body = source.read(int.from_bytes(size, "little")) if len(size) == 4 else b""
        # Half a message is a record that was not handed over.
        return marshal.loads(body) if body and len(body) == int.from_bytes(size, "little") else ["lost"]

    first = get()
    if first[0] != "o":  # the model's process ended before it said anything
        return
    options = first[1]
    sys.path[:] = options["path"]
    try:
        # A message does not take the model's core away at once; where cores are free it makes no difference.
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
    except (OSError, AttributeError):
        pass
    keeper = Keeper(RunWriter(options["folder"], fsync=options["fsync"]))

    def put(answer: list[Any]) -> None:
        try:
            os.write(1, pack(answer))
        except OSError:  # nobody is there any more to hear it
            pass

    def memory(_: int) -> mmap.mmap:
        return mmap.mmap(options["ring"], os.fstat(options["ring"]).st_size)

    serve(keeper, get, put, memory)
    # Everything is written and closed; taking an interpreter down would keep the model's process waiting.
    os._exit(0)
