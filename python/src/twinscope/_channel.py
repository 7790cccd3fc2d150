"""How records get from the model's thread to the writer: through a ring of shared memory into a process of its own.

The model's thread pays one copy into memory that is used again and again; hashing and writing happen elsewhere, without
Python's lock. The ring is bounded: when it is full, the model waits. Because the ring belongs to both processes, the writer
finishes what was handed over even when the model's process is killed with -9.

Where no process can be started a thread does the same work; `sync=True` writes before returning.
"""

from __future__ import annotations

import collections
import contextlib
import mmap
import os
import queue
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any, Protocol

from ._serve import pack, serve, unpack
from ._writer import Chunk, Keeper, Line, RunWriter

# The package without its `__init__`, which brings ten times as much as the writer needs.
START = """
import sys
package = type(sys)("twinscope")
package.__path__ = sys.argv[1:]
sys.modules["twinscope"] = package
from twinscope._serve import main
main()
"""
MOST_EVENTS = 64  # that wait for a tensor to go with
NEAR = 16 << 20  # bytes of the ring that is used first
TOUCHED = 8 << 20  # bytes of it that are made ready before they are needed
POPULATE_WRITE = 23  # MADV_POPULATE_WRITE, since Linux 5.14
LINE = 64  # what the ring hands out begins at multiples of this, so that every dtype is aligned


class Payload(Protocol):
    """The values of a tensor, not copied yet."""

    nbytes: int

    def copy_into(self, target: memoryview) -> None:
        """Writes the values, row-major and little-endian."""

    def bytes(self) -> Chunk:
        """The same values in place, where they lie like that."""


class Channel(Protocol):
    """Where a recorder puts its records. Not thread-safe; the recorder holds a lock."""

    def tensor(self, line: Line, payload: Payload | None) -> None: ...
    def event(self, line: Line) -> None: ...
    def flush(self) -> None: ...
    def close(self) -> None: ...
    def problem(self) -> str | None: ...
    def dropped(self) -> int: ...


class Direct:
    """Writes at once: slower for the model, and nothing is ever under way."""

    def __init__(self, folder: Path, fsync: bool) -> None:
        self._keeper = Keeper(RunWriter(folder, fsync=fsync))

    def tensor(self, line: Line, payload: Payload | None) -> None:
        self._keeper.tensor(line, None if payload is None else [payload.bytes()])

    def event(self, line: Line) -> None:
        self._keeper.event(line)

    def flush(self) -> None:
        pass

    def close(self) -> None:
        self._keeper.close()

    def problem(self) -> str | None:
        return self._keeper.why

    def dropped(self) -> int:
        return self._keeper.dropped


class Ring:
    """Memory handed out and given back in the same order."""

    def __init__(self, begin: int, end: int) -> None:
        self._begin = begin
        self._size = end - begin
        self._used: collections.deque[tuple[int, int]] = collections.deque()

    @property
    def empty(self) -> bool:
        return not self._used

    def take(self, size: int) -> int | None:
        """Where `size` bytes are free, or `None` for now."""
        size = -(-size // LINE) * LINE
        if not self._used:
            at = 0 if size <= self._size else None
        else:
            head, tail = self._used[0][0], sum(self._used[-1])
            if tail > head:
                at = tail if tail + size <= self._size else 0 if size < head else None
            else:
                at = tail if tail + size < head else None
        if at is None:
            return None
        self._used.append((at, size))
        return self._begin + at

    def give_back(self) -> None:
        """The oldest is free again."""
        self._used.popleft()

    def take_back(self) -> None:
        """The newest was not needed."""
        self._used.pop()


class Rings:
    """Two rings in one memory: a small one that is used again and again, and what it cannot take.

    Touching a page for the first time costs more than copying into it, and what was just copied is still in the cache when it is
    written. So as long as the writer keeps up, only the small ring is touched.
    """

    def __init__(self, memory: mmap.mmap) -> None:
        self.memory = memory
        self.view = memoryview(memory)
        self.size = len(self.view)
        near = min(NEAR, self.size)
        self._rings = (Ring(0, near), Ring(near, self.size)) if self.size >= 2 * near else (Ring(0, self.size),)
        #: Of everything that is out, which ring it is from.
        self._out: collections.deque[Ring] = collections.deque()

    @property
    def empty(self) -> bool:
        return not self._out

    @property
    def largest(self) -> int:
        """What fits for certain once everything is given back."""
        return self.size - (NEAR if len(self._rings) > 1 else 0) - LINE

    def take(self, size: int) -> int | None:
        for ring in self._rings:
            if (at := ring.take(size)) is not None:
                self._out.append(ring)
                return at
        return None

    def give_back(self) -> None:
        self._out.popleft().give_back()

    def take_back(self) -> None:
        self._out.pop().take_back()


class Remote:
    """Hands records to a writer that runs elsewhere. Messages are plain Python values; payloads go through the ring."""

    def __init__(self, link: Link, size: int) -> None:
        self._link = link
        self._ring = Rings(link.memory(size))
        self._problem: str | None = None
        self._dropped = 0
        self._flushed = 0
        self._asked = 0
        self._closed = False
        # Timings go with the tensor that follows them: half the messages.
        self._events: list[Line] = []

    def tensor(self, line: Line, payload: Payload | None) -> None:
        if payload is None or payload.nbytes == 0:
            self._send(["t", self._with_events(line), None if payload is None else [0, 0]])
            return
        at = self._room(payload.nbytes)
        if at is None:
            return
        try:
            payload.copy_into(self._ring.view[at : at + payload.nbytes])
        except BaseException:
            self._ring.take_back()
            raise
        self._send(["t", self._with_events(line), [at, payload.nbytes]])

    def _with_events(self, line: Line) -> list[Line]:
        lines, self._events = [*self._events, line], []
        return lines

    def _send_events(self) -> None:
        if self._events:
            events, self._events = self._events, []
            self._send(["e", events])

    def _room(self, size: int) -> int | None:
        if size > self._ring.largest:
            # Larger than the whole ring: wait until it is empty and make it larger.
            while not self._ring.empty and self._link.alive:
                self._read(wait=True)
            larger = NEAR + size + 2 * LINE
            self._ring = Rings(self._link.memory(larger))
            self._send(["r", larger])
        self._read(wait=False)
        while (at := self._ring.take(size)) is None:
            if not self._link.alive:
                return None
            self._read(wait=True)
        return at

    def event(self, line: Line) -> None:
        self._events.append(line)
        if line["k"] != "x" or len(self._events) > MOST_EVENTS:
            self._send_events()

    def flush(self) -> None:
        self._send_events()
        self._asked += 1
        self._send(["f"])
        while self._flushed < self._asked and self._link.alive:
            self._read(wait=True)

    def close(self) -> None:
        self._send_events()
        self._send(["c"])
        while self._link.alive and not self._closed:
            self._read(wait=True)
        self._link.close()

    def problem(self) -> str | None:
        return self._problem

    def dropped(self) -> int:
        return self._dropped

    def _send(self, message: list[Any]) -> None:
        try:
            self._link.send(message)
        except OSError:
            self._gone()

    def _read(self, wait: bool) -> None:
        """What the writer says: `k` a payload was used up, `d` dropped tensors and why, `f` flushed, `c` closed."""
        for answer in self._link.receive(wait):
            if answer[0] == "k":
                self._ring.give_back()
            elif answer[0] == "f":
                self._flushed += 1
            elif answer[0] == "d":
                self._dropped, self._problem = answer[1], answer[2]
            elif answer[0] == "c":
                self._closed = True
            elif answer[0] == "gone":
                self._gone()

    def _gone(self) -> None:
        self._problem = self._problem or "the process that writes the run ended early; was it killed?"


class Link(Protocol):
    """A way to the writer and back."""

    alive: bool

    def memory(self, size: int) -> mmap.mmap: ...
    def send(self, message: list[Any]) -> None: ...
    def receive(self, wait: bool) -> list[list[Any]]: ...
    def close(self) -> None: ...


class ThreadLink:
    """The writer is a thread of this process."""

    def __init__(self, folder: Path, fsync: bool, size: int) -> None:
        self.alive = True
        self._there: queue.SimpleQueue[list[Any]] = queue.SimpleQueue()
        self._back: queue.SimpleQueue[list[Any]] = queue.SimpleQueue()
        self._memory = mmap.mmap(-1, size)
        self._thread = threading.Thread(target=self._run, args=(folder, fsync), name="twinscope-writer", daemon=True)
        self._thread.start()

    def _run(self, folder: Path, fsync: bool) -> None:
        try:
            serve(Keeper(RunWriter(folder, fsync=fsync)), self._there.get, self._back.put, lambda _: self._memory)
        finally:
            self._back.put(["gone"])

    def memory(self, size: int) -> mmap.mmap:
        if len(self._memory) < size:
            self._memory = mmap.mmap(-1, size)
        return self._memory

    def send(self, message: list[Any]) -> None:
        self._there.put(message)

    def receive(self, wait: bool) -> list[list[Any]]:
        answers: list[list[Any]] = []
        with contextlib.suppress(queue.Empty):
            while True:
                answers.append(self._back.get(block=wait and not answers))
        if any(answer[0] == "gone" for answer in answers):
            self.alive = False
        return [answer for answer in answers if answer[0] != "gone"]

    def close(self) -> None:
        self._thread.join()


class ProcessLink:
    """The writer is a process of its own, which outlives this one until it has written everything."""

    def __init__(self, folder: Path, fsync: bool, size: int) -> None:
        self.alive = True
        self._fd = os.memfd_create("twinscope-ring")
        os.ftruncate(self._fd, size)
        self._process = subprocess.Popen(
            [sys.executable, "-S", "-c", START, str(Path(__file__).parent)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            pass_fds=[self._fd],
            start_new_session=True,  # Ctrl-C is the model's
            bufsize=0,
        )
        assert self._process.stdin is not None and self._process.stdout is not None
        self._to, self._from = self._process.stdin.fileno(), self._process.stdout.fileno()
        self._half = b""
        # Starting takes it a while; until then the ring and the pipe take what comes.
        os.set_blocking(self._from, False)
        self.send(["o", {"folder": str(folder), "fsync": fsync, "ring": self._fd, "path": [str(path) for path in sys.path]}])

    def memory(self, size: int) -> mmap.mmap:
        if os.fstat(self._fd).st_size < size:
            os.ftruncate(self._fd, size)
        memory = mmap.mmap(self._fd, os.fstat(self._fd).st_size)
        threading.Thread(target=touch, args=(memory, min(len(memory), TOUCHED)), name="twinscope-touch", daemon=True).start()
        return memory

    def send(self, message: list[Any]) -> None:
        data = pack(message)
        sent = os.write(self._to, data)
        while sent < len(data):
            sent += os.write(self._to, memoryview(data)[sent:])

    def receive(self, wait: bool) -> list[list[Any]]:
        if wait:
            os.set_blocking(self._from, True)
        try:
            return self._read_answers()
        except BlockingIOError:
            return []
        finally:
            if wait:
                os.set_blocking(self._from, False)

    def _read_answers(self) -> list[list[Any]]:
        data = os.read(self._from, 1 << 16)
        if not data:
            self.alive = False
            return [["gone"]] if self._process.wait() != 0 else []
        answers: list[list[Any]] = []
        self._half += data
        while (answer := unpack(self._half)) is not None:
            answers.append(answer[0])
            self._half = self._half[answer[1] :]
        return answers

    def close(self) -> None:
        """The run is closed; the process ends by itself, and is not waited for."""
        assert self._process.stdin is not None and self._process.stdout is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        self._process.stdout.close()
        os.close(self._fd)
        reap()
        if self._process.poll() is None:
            _ending.append(self._process)


_ending: list[subprocess.Popen[bytes]] = []


def reap(wait: bool = False) -> None:
    """Takes leave of the writers that have ended."""
    _ending[:] = [process for process in _ending if (process.wait() if wait else process.poll()) is None]


def touch(memory: mmap.mmap, size: int) -> None:
    """Has the kernel give the first pages of the ring now, beside the model: one at a time, when they are first written to, they cost
    the model's thread more than everything else that recording does."""
    with contextlib.suppress(Exception):  # only a matter of time, wherever it does not work
        import ctypes

        at = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        madvise = ctypes.CDLL(None, use_errno=True).madvise
        madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
        for begin in range(0, size, 1 << 20):
            if madvise(at + begin, min(1 << 20, size - begin), POPULATE_WRITE) != 0:
                return


def open_channel(folder: Path, *, sync: bool, fsync: bool, buffer: int) -> Channel:
    if sync:
        return Direct(folder, fsync)
    size = -(-max(buffer, 1 << 20) // mmap.PAGESIZE) * mmap.PAGESIZE
    return Remote(start_link(folder, fsync, size), size)


def start_link(folder: Path, fsync: bool, size: int) -> Link:
    if hasattr(os, "memfd_create") and sys.executable:
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            return ProcessLink(folder, fsync, size)
    return ThreadLink(folder, fsync, size)
