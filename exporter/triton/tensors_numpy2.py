"""Make the tensors of Triton's Python backend right under numpy 2. Runs inside its stub.

The stub of Triton 2.51 is built with a pybind11 older than 2.12, which looks for the item
size of an array where numpy 2 has the low half of the flags of its dtype: 0 for numbers.
Three things follow, the first two silently, and each is met at its own place:

- `Tensor(name, array)` makes an empty output while the request counts as success. Here
  outputs go through DLPack, which never reads numpy's C structures.
- Text outputs are empty as well, and DLPack has no text: their serialized bytes are
  handed over under a dtype of our own whose flags say 1.
- Inputs are copied with strides of 0, so that every element equals the first (and text
  ends the stub). The strides are an argument of one function of numpy's C API, which
  pybind11 looks up in a table: here it is given a table where this function ignores
  them, so that numpy works them out itself.

Under numpy 1 nothing of this is used. Copied beside the backend's own module by
`backend.py`; tritonwatch never imports it.
"""

from __future__ import annotations

import ctypes
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.core.multiarray as table_for_pybind11

if TYPE_CHECKING:
    from collections.abc import Callable

_FLAGS_OFFSET = 32  # of PyArray_Descr.flags, where numpy 1 had the item size
_TABLE = "_ARRAY_API"
_NEW_FROM_DESCR = 94  # index in PyArray_API, the same in numpy 1 and 2
_TABLE_LENGTH = 300  # pybind11 uses up to index 282
_python = ctypes.pythonapi
_python.PyCapsule_GetPointer.restype = ctypes.c_void_p
_python.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
_python.PyCapsule_New.restype = ctypes.py_object
_python.PyCapsule_New.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
_python.PyCapsule_SetDestructor.argtypes = [ctypes.py_object, ctypes.c_void_p]
_NewFromDescr = ctypes.PYFUNCTYPE(
    ctypes.py_object,
    ctypes.c_void_p,  # subtype
    ctypes.c_void_p,  # descr, whose reference is stolen
    ctypes.c_int,
    ctypes.c_void_p,  # dims
    ctypes.c_void_p,  # strides
    ctypes.c_void_p,  # data
    ctypes.c_int,
    ctypes.c_void_p,
)


def _table_without_strides() -> tuple[Any, ...]:
    """Return a capsule for pybind11, and the objects that must stay alive with it."""
    api = getattr(table_for_pybind11, _TABLE)
    original = _python.PyCapsule_GetPointer(api, None)
    table = (ctypes.c_void_p * _TABLE_LENGTH).from_address(original)
    new_from_descr = _NewFromDescr(table[_NEW_FROM_DESCR] or 0)

    def contiguous(
        subtype: int, descr: int, nd: int, dims: int, _strides: int, *rest: Any
    ) -> object:
        return new_from_descr(subtype, descr, nd, dims, None, *rest)

    callback = _NewFromDescr(contiguous)
    changed = (ctypes.c_void_p * _TABLE_LENGTH)(*table)
    changed[_NEW_FROM_DESCR] = ctypes.cast(callback, ctypes.c_void_p).value
    capsule = _python.PyCapsule_New(ctypes.addressof(changed), None, None)
    return capsule, changed, callback


def _check_layout() -> None:
    """Refuse a numpy whose dtypes are not laid out as numpy 2.0 laid them out."""
    for name in ("u1", "f8", "O", "S7"):
        dtype = np.dtype(name, copy=True)
        flags = ctypes.c_uint64.from_address(id(dtype) + _FLAGS_OFFSET).value
        size = ctypes.c_int64.from_address(id(dtype) + _FLAGS_OFFSET + 8).value
        if (flags, size) != (dtype.flags & 0xFFFFFFFFFFFFFFFF, dtype.itemsize):
            raise ImportError(
                f"numpy {np.__version__} lays out its dtypes in an unknown way; "
                "Triton's Python backend needs numpy 1.26 or 2.2"
            )


def _as_bytes(data: bytes) -> np.ndarray[Any, Any]:
    """An array over the data that the old pybind11 measures right: 1 byte an item.

    The flag also says "items are references", which numpy heeds only for memory that an
    array owns; this one borrows it, and only the stub ever sees it.
    """
    dtype = np.dtype(np.uint8, copy=True)
    array: np.ndarray[Any, Any] = np.ndarray((len(data),), dtype, data)
    ctypes.c_uint32.from_address(id(array.dtype) + _FLAGS_OFFSET).value = 1
    return array


def _measured(serialize: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def serialize_byte_tensor(array: np.ndarray[Any, Any]) -> Any:
        data = serialize(array)
        return _as_bytes(data) if isinstance(data, bytes) else data

    return serialize_byte_tensor


class _Export:
    """An array that only DLPack sees."""

    def __init__(self, array: np.ndarray[Any, Any]) -> None:
        self._array = array

    def __dlpack__(self, **_options: Any) -> object:
        capsule = self._array.__dlpack__()
        # The stub frees the tensor but marks the capsule otherwise than numpy's
        # destructor expects, which then prints a traceback for every output.
        _python.PyCapsule_SetDestructor(capsule, None)
        return capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._array.__dlpack_device__()


def _wrap(tensor: Any) -> Any:
    """The class that models see as `pb_utils.Tensor`."""

    class Meta(type):
        def __call__(cls, name: str, array: np.ndarray[Any, Any]) -> Any:
            if array.dtype.kind in "OSU":
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


_KEPT = _table_without_strides()


def install(name: str) -> None:
    """Correct the stub's pybind11, the named module, and the `Tensor` set on it later."""
    _check_layout()
    setattr(table_for_pybind11, _TABLE, _KEPT[0])
    module: Any = sys.modules[name]
    module.serialize_byte_tensor = _measured(module.serialize_byte_tensor)
    module.__class__ = _Backend
