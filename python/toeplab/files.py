"""Reads HDF5 and safetensors files as arrays."""
from __future__ import annotations

import ctypes
import json
import struct
from ctypes import c_char_p, c_int64, c_uint8, c_void_p
from pathlib import Path
from typing import Any, Dict, List, Tuple, Union

import numpy as np

from ._library import NOT_FOUND, Attr, ToeplabError, call, check, engine, function, text
from .tensor import Tensor

_MOST = 100_000_000  # bytes of a safetensors header


def load(path: Union[str, Path]) -> Dict[str, Any]:
    """Read a file: of safetensors name -> array; of HDF5 the nested state of a checkpoint.

    Elements become float32 or int32. What is damaged raises ToeplabError.
    """
    path = Path(path)
    if path.suffix == ".safetensors":
        return _safetensors(path)
    if path.suffix == ".h5":
        return _h5(path)
    raise ValueError(f"load: {path} must end in .safetensors or .h5")


# ---- HDF5 -------------------------------------------------------------------------------------


def _key(text: str) -> Union[str, int]:
    """A component of a path; integer keys are written #3 (store/checkpoint.lua)."""
    return int(text[1:]) if text.startswith("#") else text


def _place(tree: Dict[Any, Any], path: str, value: Any) -> None:
    *folders, last = [_key(part) for part in path.strip("/").split("/")]
    for folder in folders:
        tree = tree.setdefault(folder, {})
    if last != "?":
        tree[last] = value


def _children(file: c_void_p, group: str) -> List[Tuple[str, str]]:
    child, found, i = function("tl_h5_child"), [], 0
    name, kind = c_char_p(), c_uint8()
    while True:
        status = child(file, group.encode(), i, ctypes.byref(name), ctypes.byref(kind))
        if status == NOT_FOUND:
            return found
        check(status)
        found.append((name.value.decode(), chr(kind.value)))
        i += 1


def _read_group(file: c_void_p, group: str, tree: Dict[Any, Any]) -> None:
    for name, kind in _children(file, group or "/"):
        path = f"{group}/{name}"
        if kind == "g":
            _read_group(file, path, tree)
        else:
            handle = c_void_p()
            call("tl_h5_read", file, path.encode(), ctypes.byref(handle))
            _place(tree, path, Tensor(handle).numpy())


def _attribute(a: Attr) -> Tuple[str, Any]:
    name, kind = a.name.decode(), chr(a.kind)
    value = {"i": a.i, "f": a.f, "s": a.s}[kind]
    if kind == "s":
        value = value.decode(errors="replace")
    if name.endswith("?") and not name.endswith("/?"):  # a boolean
        return name[:-1], value != 0
    return name, value


def _h5(path: Path) -> Dict[str, Any]:
    file, tree, i, a = c_void_p(), {}, 0, Attr()
    call("tl_h5_open", engine.context, text("path", path), ctypes.byref(file))
    try:
        while True:
            status = function("tl_h5_attr")(file, b"/", i, ctypes.byref(a))
            if status == NOT_FOUND:
                break
            check(status)
            _place(tree, *_attribute(a))
            i += 1
        _read_group(file, "", tree)
    finally:
        function("tl_h5_close")(file)
    return tree


# ---- safetensors ------------------------------------------------------------------------------


def _unique(pairs: List[Tuple[str, Any]]) -> Dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key is there twice")
    return found


def _header(path: Path) -> Tuple[Dict[str, Any], int, int]:
    """The header, the offset of the data and their size."""
    with open(path, "rb") as file:
        size, start = path.stat().st_size, file.read(8)
        length = struct.unpack("<Q", start)[0] if len(start) == 8 else _MOST + 1
        if length > min(_MOST, size - 8):
            raise ValueError(f"its header cannot have {length} bytes")
        header = json.loads(file.read(length).decode(), object_pairs_hook=_unique)
    if not isinstance(header, dict):
        raise ValueError("its header is no object")
    header.pop("__metadata__", None)
    return header, 8 + length, size - 8 - length


def _safetensors(path: Path) -> Dict[str, np.ndarray]:
    tensors: Dict[str, np.ndarray] = {}
    try:
        header, offset, size = _header(path)
        at = 0
        for name, e in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
            first, last = e["data_offsets"]
            width = function("tl_raw_bytes")(e["dtype"].encode())
            count = 1
            for n in e["shape"]:
                count *= n
            if width == 0:
                raise ValueError(f"'{name}' has the dtype {e['dtype']}, which is not read")
            if first != at or last - first != count * width or any(n < 0 for n in e["shape"]):
                raise ValueError(f"'{name}' has the bytes {first} to {last}, which overlap, leave "
                                 f"a gap, or do not fit its shape {e['shape']}")
            at = last
            dims, handle = (c_int64 * max(len(e["shape"]), 1))(*e["shape"]), c_void_p()
            call("tl_raw_read", engine.context, str(path).encode(), offset + first,
                 e["dtype"].encode(), len(e["shape"]), dims, ctypes.byref(handle))
            tensors[name] = Tensor(handle).numpy()
        if at != size:
            raise ValueError(f"its tensors take {at} bytes of {size}")
    except RecursionError:
        raise ToeplabError(f"{path} is no safetensors file: its header is nested too deeply",
                           "ECORRUPT") from None
    except (KeyError, TypeError, AttributeError, ValueError) as why:
        raise ToeplabError(f"{path} is no safetensors file: {why}", "ECORRUPT") from why
    return tensors
