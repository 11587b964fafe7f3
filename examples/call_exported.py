"""Call a library that `tirgym export` wrote, with NumPy alone: python call_exported.py lib.so"""

import ctypes
import json
import pathlib
import sys

import numpy as np

path = pathlib.Path(sys.argv[1]).absolute()
info = json.loads(path.with_name(path.name + ".json").read_text())
function = getattr(ctypes.CDLL(str(path)), info["function"])
arrays = [np.ones(a["shape"], a["dtype"]) for a in info["arguments"]]
status = function(*(array.ctypes.data_as(ctypes.c_void_p) for array in arrays))
for array, argument in zip(arrays, info["arguments"], strict=True):
    print(argument["role"], argument["name"], array.shape, array.dtype, "mean", array.mean())
sys.exit(status)
