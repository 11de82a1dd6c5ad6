"""Make the tensors of Triton's Python backend right under numpy 2. Runs inside its stub.

The stub of Triton 2.51 is built with a pybind11 that reads the item size of any numpy 2
array as 0. So `Tensor(name, array)` makes an empty output while the request counts as
success, and `Tensor.as_numpy()` gives an input whose strides are all 0: every element
equals the first. Here outputs go through DLPack, which never asks numpy's C structures,
and inputs get their strides back. Under numpy 1 nothing of this is used.

Copied beside the backend's own module by `backend.py`; tritonwatch never imports it.
"""

from __future__ import annotations

import ctypes
import sys
from types import ModuleType
from typing import Any

import numpy as np

_drop_destructor = ctypes.pythonapi.PyCapsule_SetDestructor
_drop_destructor.argtypes = [ctypes.py_object, ctypes.c_void_p]


class _Export:
    """An array that only DLPack sees."""

    def __init__(self, array: np.ndarray[Any, Any]) -> None:
        self._array = array

    def __dlpack__(self, **_options: Any) -> object:
        capsule = self._array.__dlpack__()
        # The stub frees the tensor but marks the capsule otherwise than numpy's
        # destructor expects, which then prints a traceback for every output.
        _drop_destructor(capsule, None)
        return capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._array.__dlpack_device__()


def _wrap(tensor: Any) -> Any:
    """The class that models see as `pb_utils.Tensor`."""
    original_as_numpy = tensor.as_numpy

    def as_numpy(self: Any) -> np.ndarray[Any, Any]:
        array: np.ndarray[Any, Any] = original_as_numpy(self)
        if array.dtype.hasobject:
            return array
        strides = np.empty(array.shape, array.dtype).strides
        return np.lib.stride_tricks.as_strided(array, array.shape, strides)

    tensor.as_numpy = as_numpy

    class Meta(type):
        def __call__(cls, name: str, array: np.ndarray[Any, Any]) -> Any:
            if array.dtype.kind in "OSU":
                # Text goes by its serialized bytes, whose size is read from Python.
                return tensor(name, array)
            return tensor.from_dlpack(name, _Export(np.array(array, order="C")))

        def __instancecheck__(cls, value: object) -> bool:
            return isinstance(value, tensor)

        def __getattr__(cls, name: str) -> Any:
            return getattr(tensor, name)

    return Meta("Tensor", (), {"__doc__": tensor.__doc__})


class _Backend(ModuleType):
    """The backend's module; the stub sets `Tensor` on it after its code has run."""

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, _wrap(value) if name == "Tensor" else value)


def install(module: str) -> None:
    """Make the named module wrap the `Tensor` that is set on it from now on."""
    sys.modules[module].__class__ = _Backend
