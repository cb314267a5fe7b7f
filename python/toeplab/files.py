"""Reads HDF5 and safetensors files as arrays."""
from __future__ import annotations

import ctypes
import json
import math
import re
import struct
import warnings
from ctypes import c_char_p, c_int64, c_uint8, c_void_p
from pathlib import Path
from typing import Any, Dict, List, Tuple, Union

import numpy as np

from ._library import NOT_FOUND, Attr, ToeplabError, call, check, engine, function, text
from .tensor import Tensor

_MOST = 100_000_000  # bytes of a safetensors header
_MOST_DIMS = 6  # TL_MAXDIMS


def load(path: Union[str, Path]) -> Dict[str, Any]:
    """Read a .safetensors file as name -> array, an .h5 file as the nested state of a checkpoint.

    Elements become float32 or int32. Tensors that cannot, such as complex ones, are skipped with a
    warning. A damaged file raises ToeplabError.
    """
    path = Path(path)
    if path.suffix == ".safetensors":
        return _safetensors(path)
    if path.suffix == ".h5":
        return _h5(path)
    raise ValueError(f"load: {path} must end in .safetensors or .h5")


# ---- HDF5 -------------------------------------------------------------------------------------


def _key(text: str) -> Union[str, int]:
    """Return a component of a path; integer keys are written #3 (models/files/checkpoint.lua)."""
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
    """Return a JSON object; half a surrogate pair in a key becomes U+FFFD."""
    found = {re.sub("[\ud800-\udfff]", "\ufffd", key): value for key, value in pairs}
    if len(found) != len(pairs):
        raise ValueError("it has a key twice")
    return found


def _no_number(word: str) -> None:
    raise ValueError(f"{word} is not JSON")


def _header(path: Path) -> Tuple[Dict[str, Any], int, int]:
    """Return the header without its metadata, the offset of the data and their size."""
    with open(path, "rb") as file:
        size, start = path.stat().st_size, file.read(8)
        length = struct.unpack("<Q", start)[0] if len(start) == 8 else _MOST + 1
        if length > min(_MOST, size - 8):
            raise ValueError(f"its header cannot have {length} bytes")
        written = file.read(length).decode()
    header = json.loads(written, object_pairs_hook=_unique, parse_constant=_no_number)
    if not written.startswith("{"):
        raise ValueError("its header does not begin with '{'")
    metadata = header.pop("__metadata__", {})
    if not isinstance(metadata, dict) or any(type(v) is not str for v in metadata.values()):
        raise ValueError("its __metadata__ is not an object of strings")
    return header, 8 + length, size - 8 - length


def _integers(value: Any) -> bool:
    return isinstance(value, list) and all(type(n) is int and 0 <= n < 2**63 for n in value)


def _entry(name: str, about: Any) -> Tuple[int, int, str, str, List[int], str]:
    """Return first and last byte, name, type, shape, and why Toeplab cannot hold it, if so."""
    kind, shape, place = (about.get(key) if isinstance(about, dict) else None
                          for key in ("dtype", "shape", "data_offsets"))
    if not isinstance(kind, str):
        raise ValueError(f"'{name}' has no dtype")
    plain = kind.isascii() and "\0" not in kind
    width = function("tl_raw_bytes")(text("dtype", kind)) if plain else 0
    if not _integers(shape) or not _integers(place) or len(place) != 2:
        raise ValueError(f"'{name}' has no shape and data_offsets of integers from 0 on")
    if place[0] > place[1] or width and place[1] - place[0] != math.prod(shape) * width:
        raise ValueError(f"'{name}' has the bytes {place[0]} to {place[1]}, which do not fit its "
                         f"shape {shape}")
    why = f"{len(shape)} dimensions" if len(shape) > _MOST_DIMS else ""
    why = why if width else kind or "no type"
    return place[0], place[1], name, kind, shape, why


def _safetensors(path: Path) -> Dict[str, np.ndarray]:
    """Read the file as models/files/formats/safetensors.lua does: the two accept the same files."""
    tensors: Dict[str, np.ndarray] = {}
    try:
        header, offset, size = _header(path)
        entries, at = sorted(_entry(*item) for item in header.items()), 0
        for first, last, name, *_ in entries:
            if first != at:
                raise ValueError(f"'{name}' overlaps another tensor or leaves a gap before byte "
                                 f"{first}")
            at = last
        if at != size:
            raise ValueError(f"its tensors take {at} bytes of {size}")
    except RecursionError:
        raise ToeplabError(f"{path} is not a safetensors file: its header is nested too deeply",
                           "ECORRUPT") from None
    except ValueError as why:
        raise ToeplabError(f"{path} is not a safetensors file: {why}", "ECORRUPT") from why
    unread = [f"'{name}' ({why})" for _, _, name, _, _, why in entries if why]
    if unread:
        warnings.warn(f"{path}: skipped, because no tensor can hold them: {', '.join(unread[:8])}"
                      + (", ..." if len(unread) > 8 else ""), stacklevel=3)
    for first, _, name, kind, shape, why in entries:
        if why:
            continue
        dims, handle = (c_int64 * max(len(shape), 1))(*shape), c_void_p()
        call("tl_raw_read", engine.context, text("path", path), offset + first, text("dtype", kind),
             len(shape), dims, ctypes.byref(handle))
        tensors[name] = Tensor(handle).numpy()
    return tensors
