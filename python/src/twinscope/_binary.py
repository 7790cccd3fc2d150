"""Finds the `twinscope` program and asks it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

NAME = "twinscope.exe" if os.name == "nt" else "twinscope"


class Error(RuntimeError):
    """twinscope has no answer: what is wrong, and under `hint` what to do."""

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(f"{message} ({hint})" if hint else message)
        self.message = message
        self.hint = hint


def binary() -> Path:
    """The program: `TWINSCOPE_BINARY`, else the one installed with this package, else the one on the PATH."""
    if chosen := os.environ.get("TWINSCOPE_BINARY"):
        if not Path(chosen).is_file():
            raise Error(f"TWINSCOPE_BINARY is `{chosen}`, which is no file")
        return Path(chosen)
    for folder in _script_folders():
        if (folder / NAME).is_file():
            return folder / NAME
    if found := shutil.which(NAME):
        return Path(found)
    raise Error("the twinscope program is not installed", "pip install the whole wheel, or set TWINSCOPE_BINARY to the program")


def _script_folders() -> list[Path]:
    schemes = [sysconfig.get_path("scripts"), sysconfig.get_path("scripts", f"{os.name}_user"), str(Path(sys.executable).parent)]
    return [Path(folder) for folder in schemes if folder]


def ask(command: str, *arguments: str) -> Any:
    """The document that a command prints. Exit codes are in it: a divergence is an answer."""
    done = subprocess.run([str(binary()), command, *arguments, "--json"], capture_output=True, check=False)
    said = done.stderr.decode(errors="replace").strip()
    try:
        answer = json.loads(done.stdout)
    except ValueError:
        raise Error(said or f"`twinscope {command}` ended with {done.returncode} and said nothing") from None
    if isinstance(answer, dict) and "error" in answer and "schema" not in answer:
        raise Error(answer["error"]["message"], answer["error"].get("hint"))
    return answer


def flags(settings: dict[str, Any]) -> list[str]:
    """`rtol=1e-3` is `--rtol=1e-3`, a list is the flag again and again, `True` the bare flag, `None` and `False` nothing."""
    given = []
    for key, value in settings.items():
        flag = "--" + key.rstrip("_").replace("_", "-")
        for item in value if isinstance(value, (list, tuple)) else [value]:
            if item is True:
                given.append(flag)
            elif item is not None and item is not False:
                given.append(f"{flag}={os.fspath(item) if isinstance(item, os.PathLike) else item}")
    return given
