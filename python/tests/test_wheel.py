"""The wheel, built and installed into an empty environment."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import twinscope
from conftest import REPOSITORY


def run(*command: object, **options: object) -> str:
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False, **options)  # type: ignore[call-overload]
    assert done.returncode == 0, done.stderr
    return str(done.stdout)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    # What `pip install ./python` does, with the profile that the tests of the program were built with, so that nothing is compiled twice.
    settings = "--config-settings=build-args=--profile dev --locked"
    tools = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    pip = [sys.executable, "-m", "pip", "wheel", "--no-build-isolation", "--no-deps", "--no-index"]
    run(*pip, settings, "-w", folder, REPOSITORY / "python", env=tools)
    return next(folder.glob("*.whl"))


def test_one_wheel_is_the_program_and_the_package(wheel: Path, tmp_path: Path) -> None:
    assert wheel.name.startswith(f"twinscope-{twinscope.__version__}-py3-none-")
    run(sys.executable, "-m", "venv", "--without-pip", tmp_path / "env")
    python = tmp_path / "env" / "bin" / "python"
    run(sys.executable, "-m", "pip", "--python", python, "install", "--no-index", wheel)
    program = """
import sys, twinscope
with twinscope.capture("run") as run:
    twinscope.record("x", 1.5)
print(twinscope.ls(run).names, twinscope.diff(run, {"x": 1.5}).agree, twinscope.binary())
"""
    # Not the package and the program that the tests use.
    bare = {"PATH": "/usr/bin:/bin"}
    out = run(python, "-c", program, cwd=tmp_path, env=bare)
    assert out.strip() == f"['x'] True {tmp_path / 'env' / 'bin' / 'twinscope'}"
    assert run(tmp_path / "env" / "bin" / "twinscope", "--version").startswith("twinscope ")
    for program in ([tmp_path / "env" / "bin" / "twinscope"], [python, "-m", "twinscope"]):
        assert "diff" in run(*program, "--help", env=bare)


def test_the_wheel_is_typed_and_asks_for_nothing(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        metadata = archive.read(next(name for name in names if name.endswith("METADATA"))).decode()
    assert "twinscope/py.typed" in names
    required = [line for line in metadata.splitlines() if line.startswith("Requires-Dist") and "extra ==" not in line]
    assert required == []
