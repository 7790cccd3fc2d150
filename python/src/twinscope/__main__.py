"""`python -m twinscope` is the `twinscope` program."""

import os
import sys

from ._binary import Error, binary

try:
    program = str(binary())
except Error as error:
    sys.exit(f"twinscope: {error.message}\nhint: {error.hint}" if error.hint else f"twinscope: {error.message}")
if os.name == "nt":
    import subprocess

    sys.exit(subprocess.call([program, *sys.argv[1:]]))
os.execv(program, [program, *sys.argv[1:]])
