"""Tests of torch and JAX are left out, with the loud line of scripts/python.sh, where those cannot be installed."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

collect_ignore_glob = []
if importlib.util.find_spec("torch") is None:
    collect_ignore_glob.append("test_torch*.py")
if importlib.util.find_spec("jax") is None:
    collect_ignore_glob.append("test_jax*.py")

REPOSITORY = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def outside_of_a_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "WORLD_SIZE", "SLURM_PROCID", "SLURM_NTASKS", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "PMI_RANK", "PMI_SIZE"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def script(tmp_path: Path) -> Callable[..., subprocess.Popen[str]]:
    """Starts a Python program of its own."""

    def start(text: str, **env: str) -> subprocess.Popen[str]:
        program = textwrap.dedent(text)
        pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        return subprocess.Popen([sys.executable, "-c", program], cwd=tmp_path, env={**os.environ, **env}, **pipes)

    return start


def index(run: Path, rank: int = 0) -> list[dict[str, Any]]:
    """The lines of a run's index."""
    return [json.loads(line) for line in (run / f"rank-{rank:05}" / "index.jsonl").read_text().splitlines()]


def records(run: Path, rank: int = 0) -> list[dict[str, Any]]:
    return [line for line in index(run, rank) if line["k"] == "t"]
