"""Raw bytes with a sidecar. Run it with Python 3 and numpy to write the cases again."""
import functools, json, pathlib, sys
import numpy as np

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
import golden
from golden import tensor

case = functools.partial(golden.case, HERE)


def blob(sidecar, data, name="input.json"):
    def write(path):
        path.write_bytes(data)
        (path.parent / name).write_text(json.dumps(sidecar))
    return write


A = np.arange(12, dtype="<f4").reshape(3, 4)
case("sidecar", blob({"dtype": "float32", "shape": [3, 4], "offset": 8, "byteorder": "little", "order": "C"}, bytes(8) + A.tobytes()), "bin",
     format="raw", tensors=[tensor("input", A)])
case("fortran_big", blob({"dtype": "f32", "shape": [3, 4], "byteorder": "big", "order": "F"}, A.astype(">f4").tobytes(order="F")), "bin", tensors=[tensor("input", A)])
case("open_size", blob({"dtype": "float32", "shape": [-1, 4]}, A.tobytes()), "bin", tensors=[tensor("input", A)])
case("cut", blob({"dtype": "float32", "shape": [4, 4]}, A.tobytes()), "bin", error="takes 64 bytes, 48 follow")
