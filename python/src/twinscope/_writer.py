"""Writes a run: format `twinscope-run`, version 1, as `docs/capture.md` describes it.

The bytes of a tensor are complete before its index line is written, so a run is readable at any moment, also after kill -9.
This module knows bytes and dicts, no framework; it also runs in a process of its own (see `_serve`), which is to start at once:
it imports next to nothing.
"""

from __future__ import annotations

import errno
import os

try:
    from _json import encode_basestring_ascii as quote
except ImportError:  # an interpreter without the faster half of `json`
    from json.encoder import py_encode_basestring_ascii as quote

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    Line = dict[str, Any]
else:
    Line = dict

VERSION = 1
HEADER = (1 << 18) - 8  # bytes reserved for a segment's safetensors header; data begins at a page of the file, which is written twice as fast
ROLL = 1 << 30  # bytes of data after which a segment is closed and another one begun
ALIGN = 8
LONGEST = 1024  # bytes of a name in a segment's header; longer ones are only in the index

# What safetensors calls a dtype; everything else is stored as U8 and named by `ldtype`.
SAFETENSORS = {
    "bool": "BOOL", "u8": "U8", "i8": "I8", "u16": "U16", "i16": "I16", "u32": "U32", "i32": "I32", "u64": "U64", "i64": "I64",
    "f16": "F16", "bf16": "BF16", "f32": "F32", "f64": "F64", "c64": "C64",
    "f8_e4m3fn": "F8_E4M3", "f8_e5m2": "F8_E5M2", "f8_e8m0fnu": "F8_E8M0", "f8_e4m3fnuz": "F8_E4M3FNUZ", "f8_e5m2fnuz": "F8_E5M2FNUZ",
}  # fmt: skip

Chunk = memoryview | bytes | bytearray


def encode(value: Any) -> str:
    """JSON of anything: `json` itself takes half of the writer's start to import, and raises where a line must be written.

    NaN and infinities are those words, what JSON has no form for is its text.
    """
    kind = type(value)
    if kind is str:
        return quote(value)
    if kind is int:
        return repr(value)
    if kind is dict:
        return "{" + ",".join([f"{quote(str(key))}:{encode(item)}" for key, item in value.items()]) + "}"
    if kind is list or kind is tuple:
        return "[" + ",".join([encode(item) for item in value]) + "]"
    if value is None:
        return "null"
    if kind is bool:
        return "true" if value else "false"
    if kind is float:
        return repr(value) if value - value == 0 else quote("NaN" if value != value else "Infinity" if value > 0 else "-Infinity")
    return quote(str(value))


class Hasher:
    """xxh3 where the `xxhash` package is installed, else 128 bits of sha256; the text says which."""

    def __init__(self) -> None:
        self._kind: str
        self._new: Callable[[], Any]
        try:
            from xxhash import xxh3_128

            self._kind, self._new = "xxh3", xxh3_128
        except ImportError:
            from hashlib import sha256

            self._kind, self._new = "sha256", sha256

    def of(self, chunks: Iterable[Chunk]) -> str:
        state = self._new()
        for chunk in chunks:
            state.update(chunk)
        return f"{self._kind}:{state.hexdigest()[:32]}"


class Appender:
    """A file that only grows, by whole pieces: a piece that did not fit is taken back."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.length = 0
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)

    def append(self, pieces: Iterable[Chunk]) -> None:
        at = self.length
        try:
            for piece in pieces:
                at += write_all(self._fd, piece, at)
        except OSError:
            os.ftruncate(self._fd, self.length)
            raise
        self.length = at

    def rewrite(self, data: bytes, at: int) -> None:
        write_all(self._fd, data, at)

    def sync(self) -> None:
        os.fsync(self._fd)

    def close(self) -> None:
        os.close(self._fd)


def write_all(fd: int, data: Chunk, at: int) -> int:
    """Writes all of `data` at an offset; the operating system may take it in several goes."""
    view = memoryview(data).cast("B")
    done = 0
    while done < len(view):
        done += os.pwrite(fd, view[done:], at + done)
    return done


class Segment:
    """A payload file, a valid safetensors file once it is closed."""

    def __init__(self, folder: str, number: int) -> None:
        self.number = number
        self._entries: Line = {}
        self._entry_bytes = 2
        self._file = Appender(os.path.join(folder, f"seg-{number:05}.safetensors"))
        self._file.append([HEADER.to_bytes(8, "little") + b"{}".ljust(HEADER)])

    @property
    def data(self) -> int:
        return self._file.length - HEADER - 8

    def has_room(self, size: int, key: str) -> bool:
        # A tensor larger than a segment gets one to itself.
        fits = self.data == 0 or self.data + size <= ROLL
        return fits and self._entry_bytes + 6 * len(key) + 1024 < HEADER * 9 // 10

    def append(self, key: str, entry: Line, chunks: list[Chunk]) -> tuple[int, int]:
        padding = -self.data % ALIGN
        size = sum(len(chunk) for chunk in chunks)
        begin = self.data + padding
        self._file.append([b"\0" * padding, *chunks])
        if padding:
            # safetensors knows no holes.
            self._name(f"__pad.{begin - padding}", {"dtype": "U8", "shape": [padding], "data_offsets": [begin - padding, begin]})
        self._name(key, {**entry, "data_offsets": [begin, begin + size]})
        return begin, begin + size

    def _name(self, key: str, entry: Line) -> None:
        self._entries[key] = entry
        self._entry_bytes += len(encode({key: entry}))

    def sync(self) -> None:
        self._file.sync()

    def close(self) -> None:
        header = encode(self._entries).encode().ljust(HEADER)
        self._file.rewrite(header, 8)
        self._file.close()


class RunWriter:
    """One rank of a run. `append` raises OSError when the disk is full and leaves what was written before whole."""

    def __init__(self, folder: str | os.PathLike[str], *, fsync: bool = False) -> None:
        self.folder = os.fspath(folder)
        self.records = 0
        self.bytes = 0
        self._fsync = fsync
        self._hasher = Hasher()
        self._index = Appender(os.path.join(self.folder, "index.jsonl"))
        self._segment: Segment | None = None
        self._segments = 0
        # The record that holds the bytes of this hash and length, and the hash of each record: a hundred bytes a record.
        self._stored: dict[tuple[str, int], int] = {}
        self._hashes: dict[int, str] = {}

    def append(self, line: Line, chunks: list[Chunk] | None) -> None:
        """Writes a tensor: `line` without where its bytes are, and the bytes; `None` when there are none to write."""
        if chunks is not None:
            self._place(line, chunks)
        elif (earlier := self._hashes.get(line.get("same", -1))) is not None:
            line["hash"] = earlier
        self.event(line)
        if "err" not in line:
            self.records += 1

    def _place(self, line: Line, chunks: list[Chunk]) -> None:
        size = sum(len(chunk) for chunk in chunks)
        line["hash"] = self._hashes[line["i"]] = self._hasher.of(chunks)
        if (earlier := self._stored.get((line["hash"], size))) is not None:
            line["same"] = earlier
            return
        named = len(line["name"].encode()) + len(line["arg"].encode()) <= LONGEST
        key = f"{line['i']}:{line['name']}:{line['role']}:{line['arg']}" if named else str(line["i"])
        segment = self._room(size, key)
        # What safetensors has no name for is bytes to it.
        shape = [size] if "ldtype" in line else line["shape"]
        begin, end = segment.append(key, {"dtype": line["dtype"], "shape": shape}, chunks)
        line["seg"], line["off"] = segment.number, [begin, end]
        self._stored[line["hash"], size] = line["i"]
        self.bytes += size

    def _room(self, size: int, key: str) -> Segment:
        if self._segment is not None and not self._segment.has_room(size, key):
            self._close_segment()
        if self._segment is None:
            self._segment = Segment(self.folder, self._segments)
            self._segments += 1
        return self._segment

    def event(self, line: Line) -> None:
        """Appends a line to the index, in one write."""
        text = encode(line) + "\n"
        self._index.append([text.encode()])
        if self._fsync and line["k"] in ("s", "end"):
            if self._segment is not None:
                self._segment.sync()
            self._index.sync()

    def close(self, dropped: int = 0, why: str | None = None) -> None:
        """Fills in the segment's header and writes the line that says the rank came to its end."""
        end = {"k": "end", "n": self.records, "bytes": self.bytes, "dropped": dropped}
        if why:
            end["err"] = why
        try:
            self._close_segment()
            self.event(end)
        finally:
            self._index.close()

    def abandon(self) -> None:
        """Leaves a run that did not come to its end: everything in it whole, and no line that says it was closed."""
        try:
            self._close_segment()
        finally:
            self._index.close()

    def _close_segment(self) -> None:
        if self._segment is not None:
            self._segment.close()
            self._segment = None


class Keeper:
    """A writer that a full disk does not stop: what does not fit is said in its line and counted in the last one."""

    def __init__(self, writer: RunWriter) -> None:
        self.writer = writer
        self.dropped = 0
        self.why: str | None = None
        # Payloads of this size did not fit. Larger ones are not tried before the next step.
        self._too_large: int | None = None

    def tensor(self, line: Line, chunks: list[Chunk] | None) -> None:
        size = sum(len(chunk) for chunk in chunks or ())
        if "err" in line and "stats" not in line:
            self.dropped += 1
        try:
            if chunks is not None and self._too_large is not None and size >= self._too_large:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            self.writer.append(line, chunks)
        except OSError as error:
            if chunks is not None:
                self._too_large = size
            self.dropped += 1
            self.why = self.why or describe(error, self.writer.folder)
            bare = {key: value for key, value in line.items() if key not in ("seg", "off", "same", "hash")}
            try:
                self.writer.event({**bare, "err": self.why})
            except OSError:  # no room for this line either: the count says so
                pass

    def event(self, line: Line) -> None:
        if line["k"] == "s":
            self._too_large = None
        try:
            self.writer.event(line)
        except OSError as error:
            self.why = self.why or describe(error, self.writer.folder)

    def close(self) -> None:
        try:
            self.writer.close(self.dropped, self.why)
        except OSError as error:
            self.why = self.why or describe(error, self.writer.folder)

    def abandon(self) -> None:
        try:
            self.writer.abandon()
        except OSError:
            pass


def describe(error: OSError, folder: str) -> str:
    return f"cannot write to {folder}: {error.strerror or error}"
