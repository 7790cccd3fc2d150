"""What ran, and as which rank: `run.json` and `rank.json`."""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import socket
import subprocess
import sys
import time
import uuid
from dataclasses import dataclass, field
from pathlib import Path

from ._writer import VERSION, Line

RANKS = ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK")
SIZES = ("WORLD_SIZE", "SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE")
COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
OURS = re.compile(r"index\.jsonl|rank\.json|seg-\d+\.safetensors")


@dataclass
class Rank:
    """Which process of how many, and where in the mesh."""

    number: int = 0
    world_size: int = 1
    coords: dict[str, int] = field(default_factory=dict)
    mesh: dict[str, int] = field(default_factory=dict)

    @classmethod
    def here(cls, number: int | None, world_size: int | None) -> Rank:
        """As told, else as torch.distributed knows, else as torchrun, SLURM and MPI tell their processes."""
        known_number, known_size = _from_torch() or (_from_env(RANKS), _from_env(SIZES))
        number = known_number if number is None else number
        world_size = known_size if world_size is None else world_size
        if number is None:
            number, world_size = 0, world_size or 1
        if not 0 <= number <= 99_999:
            raise ValueError(f"rank {number} is not between 0 and 99999")
        if world_size is not None and number >= world_size:
            raise ValueError(f"rank {number} is not one of {world_size}, which are counted from 0")
        return cls(number, world_size or number + 1)

    def write(self, folder: Path) -> None:
        about: Line = {"rank": self.number, "pid": os.getpid(), "host": socket.gethostname()}
        if self.coords:
            about["coords"] = self.coords
        write_whole(folder / "rank.json", about)


def _from_torch() -> tuple[int, int] | None:
    distributed = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return None
    return distributed.get_rank(), distributed.get_world_size()


def _from_env(names: tuple[str, ...]) -> int | None:
    for name in names:
        if text := os.environ.get(name):
            if not text.strip().isdigit():
                raise ValueError(f"the environment variable {name} is {text!r}, which is no number; pass rank= and world_size=")
            return int(text)
    return None


def prepare(path: Path, rank: Rank, label: str, about: Line, overwrite: bool) -> Path:
    """Makes the folder of a rank, and says what runs. A rank that was recorded before is never written over unasked."""
    folder = path / f"rank-{rank.number:05}"
    if overwrite:
        _remove(path, rank)
    if (folder / "index.jsonl").exists():
        raise FileExistsError(f"{folder} holds a run already; record to another folder, or pass overwrite=True to replace it")
    folder.mkdir(parents=True, exist_ok=True)
    if rank.number == 0:
        write_whole(path / "run.json", _run(rank, label, about))
    rank.write(folder)
    return folder


def _remove(path: Path, rank: Rank) -> None:
    """Only files that the format names, of this rank; rank 0 also removes ranks that this run does not have."""
    for folder in path.glob("rank-*"):
        number = folder.name.removeprefix("rank-")
        if number.isdigit() and (int(number) == rank.number or (rank.number == 0 and int(number) >= rank.world_size)):
            for file in folder.iterdir():
                if OURS.fullmatch(file.name):
                    file.unlink()
            if not any(folder.iterdir()):
                folder.rmdir()


def _run(rank: Rank, label: str, about: Line) -> Line:
    from . import __version__

    run: Line = {
        "format": "twinscope-run",
        "version": VERSION,
        "run_id": str(uuid.uuid4()),
        "label": label,
        "created_ns": time.time_ns(),
        "producer": f"twinscope-python {__version__}",
        "world_size": rank.world_size,
        "argv": sys.argv,
        "host": socket.gethostname(),
        "machine": {"os": platform.system().lower(), "arch": platform.machine(), "cores": os.cpu_count(), "python": platform.python_version()},
    }
    if rank.mesh:
        run["mesh"] = rank.mesh
    if git := _git():
        run["git"] = git
    return {**run, **about}


def _git() -> str | None:
    """The commit of the working folder, where there is one. Read from git's files where they are as usual: starting git takes milliseconds."""
    commit = _head(Path.cwd())
    if commit is not None:
        return commit or None
    if shutil.which("git") is None:
        return None
    answer = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=False)
    return answer.stdout.strip() or None


def _head(folder: Path) -> str | None:
    """The commit that is checked out; empty outside of a repository, `None` when only git can tell."""
    if any(name.startswith("GIT_") for name in os.environ):
        return None
    try:
        git = next((git for parent in (folder, *folder.parents) if (git := parent / ".git").exists()), None)
        if git is None:
            return ""
        if git.is_file():  # a worktree or a submodule says where it is kept
            git = (git.parent / git.read_text().removeprefix("gitdir:").strip()).resolve()
        head = (git / "HEAD").read_text().strip()
        if not head.startswith("ref:"):
            return head if COMMIT.fullmatch(head) else None
        common = (git / (git / "commondir").read_text().strip()) if (git / "commondir").exists() else git
        ref = common / head.removeprefix("ref:").strip()
        commit = ref.read_text().strip() if ref.exists() else ""
        return commit if COMMIT.fullmatch(commit) else None
    except OSError:
        return None


def write_whole(path: Path, value: Line) -> None:
    """Under another name first: a reader sees the whole file or none."""
    draft = path.with_name(f"{path.name}.{os.getpid()}")
    draft.write_text(json.dumps(value) + "\n")
    draft.replace(path)
