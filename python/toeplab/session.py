"""Applies a stored model to arrays in a process of the program, as models are written in Lua."""
from __future__ import annotations

import contextlib
import subprocess
import tempfile
import threading
import weakref
from pathlib import Path
from typing import Any, Sequence, Union

import numpy as np

from ._library import ToeplabError

_SCRIPT = Path(__file__).with_name("session.lua")


def _end(process: subprocess.Popen, folder: tempfile.TemporaryDirectory) -> None:
    with contextlib.suppress(BrokenPipeError):
        process.stdin.close()
    process.stdout.close()
    process.wait()
    folder.cleanup()


class Session:
    """A process that keeps a model open as long as this object lives; arrays pass through files.

    Attributes: close (ends the process; called automatically with the object and at exit).
    """

    def __init__(self, program: str, words: Sequence[str]) -> None:
        """Start the program; words: the argument of tl.model, and the results folder."""
        self._lock = threading.Lock()
        self._folder = tempfile.TemporaryDirectory(prefix="toeplab-")
        self._process = subprocess.Popen(
            [program, "lua", str(_SCRIPT), self._folder.name, *words],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.close = weakref.finalize(self, _end, self._process, self._folder)
        try:
            self._check()
        except BaseException:
            self.close()
            raise

    @property
    def alive(self) -> bool:
        """Return whether the process accepts requests."""
        return self._process.poll() is None

    def _check(self) -> None:
        line = self._process.stdout.readline().decode(errors="replace").rstrip("\n")
        if line != "ok":
            raise ToeplabError(line.removeprefix("error ") or "the program has ended", "EINVAL")

    def _request(self, line: str) -> np.ndarray:
        try:
            self._process.stdin.write(line.encode() + b"\n")
            self._process.stdin.flush()
            self._check()
        except (BrokenPipeError, ValueError):
            raise ToeplabError("the program has ended", "EINVAL") from None
        except ToeplabError:
            raise
        except BaseException:  # a late answer would be taken for the next request's
            self._process.kill()
            self._process.wait()
            raise
        return np.load(self._path("out.npy"))

    def _path(self, name: str) -> Path:
        return Path(self._folder.name) / name

    def forward(self, *inputs: Any) -> np.ndarray:
        """Apply the model to arrays of ids or of float32."""
        with self._lock:
            for i, given in enumerate(inputs):
                array = np.ascontiguousarray(given)
                if array.dtype.kind not in "iuf":
                    raise TypeError(f"forward: elements of type {array.dtype} are neither ids nor "
                                    "real numbers")
                np.save(self._path(f"{i + 1}.npy"), array)
            return self._request(f"forward {len(inputs)}")

    def encode(self, text: Union[str, bytes]) -> np.ndarray:
        """Return the tokens of a text, int32 [n]."""
        with self._lock:
            data = text if isinstance(text, bytes) else text.encode(errors="surrogateescape")
            self._path("text").write_bytes(data)
            return self._request("encode")
