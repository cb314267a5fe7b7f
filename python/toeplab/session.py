"""Applies a stored model to arrays. Models are written in Lua, so a process of the program does."""
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
    """A process that has a model open until this object goes; arrays pass through files.

    Attributes: close (ends the process; also called when this object goes, and at the end).
    """

    def __init__(self, program: str, words: Sequence[str]) -> None:
        """Start the program; words: what tl.model opens, and the results folder."""
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
        """Whether the process takes requests."""
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
        except BaseException:  # its answer is still to come, and would be taken for the next one's
            self._process.kill()
            self._process.wait()
            raise
        return np.load(self._path("out.npy"))

    def _path(self, name: str) -> Path:
        return Path(self._folder.name) / name

    def forward(self, *inputs: Any) -> np.ndarray:
        """Return what the model computes of arrays, of ids or of float32."""
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
