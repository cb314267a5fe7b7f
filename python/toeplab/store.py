"""The runs of a results folder as DataFrames, and their checkpoints and models as arrays."""
from __future__ import annotations

import ctypes
import io
import json
import os
import shlex
import subprocess
import tempfile
from ctypes import c_char_p, c_void_p
from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence, Tuple, Union

import numpy as np
import pandas as pd

from ._library import ROW, STORE_READ, ToeplabError, Value, call, engine, text
from .files import load
from .session import Session

_names_of_weights = ("toeplab", "tnn-pytorch", "fairseq")
_kinds = ("best", "checkpoint")


def _nearest() -> str:
    """`results` here or, if it has no runs, the nearest above that has some."""
    here = os.getcwd()
    for folder in [here, *map(str, Path(here).parents)]:
        results = os.path.join(folder, "results")
        if any(os.path.exists(os.path.join(results, n)) for n in ("sweeps", "runs.db")):
            return os.path.relpath(results)
    return "results"


def _folder(dir: Optional[str]) -> str:
    return str(dir or os.environ.get("TOEPLAB_DIR") or _nearest())


def _value(v: Any) -> Value:
    if isinstance(v, np.generic) and not isinstance(v, np.datetime64):
        v = v.item()
    if v is None:
        return Value(ord("n"))
    if isinstance(v, int):
        if not -2**63 <= v < 2**63:
            raise OverflowError(f"query: {v} has more than 64 bits")
        return Value(ord("i"), i=int(v))
    if isinstance(v, float):
        return Value(ord("f"), f=v)
    if not isinstance(v, str):
        raise TypeError(f"query: a value is a {type(v).__name__}, not None, a number or a str")
    data = v.encode()
    value = Value(ord("s"), s=ctypes.cast(c_char_p(data), c_void_p), bytes=len(data))
    value.keep = data  # the struct points into it
    return value


def _python(v: Value) -> Any:
    kind = chr(v.kind)
    if kind == "s":
        return ctypes.string_at(v.s, v.bytes).decode(errors="replace")
    return {"i": v.i, "f": v.f}.get(kind)


def _execute(store: c_void_p, sql: str, kept: List[Value]) -> Tuple[List[str], List[List[Any]]]:
    """Return the names of the columns (none without a row) and the rows."""
    names, rows = [], []

    def row(_, columns, columns_names, cells) -> int:
        if not names:
            names.extend(columns_names[i].decode() for i in range(columns))
        rows.append([_python(cells[i]) for i in range(columns)])
        return 0

    call("tl_store_exec", store, text("sql", sql), len(kept), (Value * max(len(kept), 1))(*kept),
         ROW(row), None)
    return names, rows


def _columns(store: c_void_p, sql: str, kept: List[Value]) -> List[str]:
    """Return the names of the columns of a SELECT without rows, [] for another statement. The
    engine reports names only with a row, which an outer join adds."""
    inner = sql.rstrip().rstrip(";")
    try:
        return _execute(store, f"SELECT q.* FROM (SELECT 1) LEFT JOIN ({inner}\n) AS q", kept)[0]
    except ToeplabError:
        return []


def query(sql: str, values: Sequence[Any] = (), dir: Optional[str] = None) -> pd.DataFrame:
    """Run one SELECT on the store and return its rows; core/store/schema.sql has the views."""
    store, kept = c_void_p(), [_value(v) for v in values]
    call("tl_store_open", engine.context, text("dir", _folder(dir)), STORE_READ,
         ctypes.byref(store))
    try:
        names, rows = _execute(store, sql, kept)
        if not names:
            names = _columns(store, sql, kept)
    finally:
        engine.library.tl_store_close(store)
    return pd.DataFrame(rows, columns=names or None)


def _program() -> str:
    """Return the path of the program toeplab that belongs to the library."""
    engine.load()
    here = Path(engine.path).resolve().parent
    for path in (here / "toeplab", here / ".." / "bin" / "toeplab"):
        if path.is_file():
            return str(path)
    return "toeplab"


def _run(*words: str) -> str:
    """Return the output of the program for these arguments; raise ToeplabError if it fails."""
    done = subprocess.run([_program(), *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          check=False)
    if done.returncode != 0:
        why = done.stderr.decode(errors="replace").strip()
        raise ToeplabError(why.removeprefix("toeplab: ").removeprefix("export: "), "EINVAL")
    return done.stdout.decode(errors="replace")


Words = Union[str, Sequence[str]]  # filters of toeplab ls


def _select(words: Words, dir: Optional[str]) -> List[Dict[str, Any]]:
    """Return the exported rows of the selected trials."""
    if isinstance(words, str):
        words = shlex.split(words)
    printed = _run("export", "--json", "--dir", _folder(dir), "--", *words)
    return [json.loads(line) for line in printed.splitlines()]


def _one(words: Words, dir: Optional[str]) -> str:
    found = _select(words, dir)
    if len(found) != 1:
        raise ToeplabError(f"'{words}' selects {len(found)} trials: name one", "EINVAL")
    return found[0]["id"]


def _values(values: Sequence[Any]) -> Any:
    """Return the values of a metric as an array with NA for None. A mean in pandas skips NA, but
    not the inf and NaN of diverged trials."""
    missing = np.array([v is None for v in values], bool)
    return pd.arrays.FloatingArray(np.array([0.0 if v is None else float(v) for v in values]),
                                   missing)


def runs(words: Words = "", dir: Optional[str] = None) -> pd.DataFrame:
    """Return one row per trial, with its configuration (config.KEY) and last metrics (metric.NAME),
    NA where none was logged.

    words are filters of toeplab ls: "quickstart", "@last", "tag=paper lr<0.01"; none selects all. A
    string is split as by a shell, "note='a b'"; a list is not split: ["note=a b"].
    """
    rows = _select(words, dir)
    frame = pd.DataFrame(rows)
    for name in frame.columns:
        if name.startswith("metric."):  # JSON has inf and NaN as strings
            frame[name] = _values([row.get(name) for row in rows])
    return frame


def metrics(words: Words = "", name: Optional[str] = None,
            dir: Optional[str] = None) -> pd.DataFrame:
    """Return one row per logged value: trial, experiment, seed, name, step, value."""
    ids = [trial["id"] for trial in _select(words, dir)]
    marks = ",".join("?" * len(ids))
    which = " AND m.name = ?" if name else ""
    if name:
        found = query(f"SELECT DISTINCT name FROM v_last WHERE trial IN ({marks})", ids, dir)
        known = sorted(found["name"]) if len(found) else []
        if name not in known:
            raise ToeplabError(f"these trials have no metric '{name}'; they have: "
                               f"{', '.join(known) or 'none'}", "EINVAL")
    frame = query(f"""SELECT m.trial, t.experiment, t.seed, m.name, m.step, m.value FROM v_metrics m
        JOIN v_trials t ON t.id = m.trial WHERE m.trial IN ({marks}){which}
        ORDER BY m.trial, m.name, m.step""", [*ids, *([name] if name else [])], dir)
    frame["value"] = _values(frame["value"].astype(float))  # NULL means NaN
    return frame


def table(experiment: str, *words: str, dir: Optional[str] = None) -> pd.DataFrame:
    """Return the rows of toeplab table for an experiment; words are options of that command."""
    printed = _run("table", "--csv", "--dir", _folder(dir), *words, "--", experiment)
    return pd.read_csv(io.StringIO(printed))


def checkpoint(word: Words, kind: Optional[str] = None,
               dir: Optional[str] = None) -> Dict[str, Any]:
    """Return the state in a trial's best checkpoint or, without one, its newest, as arrays.

    kind: only "best", or only "checkpoint" (the newest).
    """
    if kind not in (None, *_kinds):
        raise ValueError(f"kind is '{kind}', not one of {', '.join(_kinds)}")
    id, kinds = _one(word, dir), [kind] if kind else _kinds
    for wanted in kinds:
        rows = query("SELECT path FROM v_artifacts WHERE trial = ? AND kind = ? ORDER BY step DESC",
                     [id, wanted], dir)
        if len(rows):
            path = Path(rows["path"][0])
            return load(path if path.is_absolute() else Path(_folder(dir)) / path)
    raise ToeplabError(f"trial {id[:12]} has no {' or '.join(kinds)}", "ENOTFOUND")


def tensors(word: Words, name: str, dir: Optional[str] = None) -> Tuple[np.ndarray, np.ndarray]:
    """Return the steps at which a trial logged a tensor, and one array of these tensors, whose
    first axis is the steps."""
    id = _one(word, dir)
    rows = query("""SELECT kind, step, path FROM v_artifacts
        WHERE trial = ? AND kind GLOB 'tensor:*' ORDER BY step""", [id], dir)
    known = sorted({kind[len("tensor:"):] for kind in rows["kind"]}) if len(rows) else []
    if name not in known:
        raise ToeplabError(f"trial {id[:12]} has no tensor '{name}'; it has: "
                           f"{', '.join(known) or 'none'}", "EINVAL")
    rows = rows[rows["kind"] == f"tensor:{name}"]
    paths = [Path(_folder(dir)) / path for path in rows["path"]]
    first = load(paths[0])[name]
    array = np.empty((len(paths), *first.shape), first.dtype)
    for i, path in enumerate(paths):
        array[i] = load(path)[name]
    return rows["step"].to_numpy(), array


class Model:
    """A stored model, from a trial or from a file that the program can open.

    Attributes: word (the filters or the path that opened it), weights (arrays by name).
    """

    def __init__(self, word: Words, weights: Dict[str, Any], opened: List[str]) -> None:
        """opened: the path of a file, or the id of a trial and the results folder."""
        self.word, self.weights, self._opened = word, weights, opened
        self._session: Optional[Session] = None

    def _running(self) -> Session:
        """Return the process that computes; the first use starts it."""
        if self._session is None or not self._session.alive:
            self._session = Session(_program(), self._opened)
        return self._session

    def forward(self, *inputs: Any) -> np.ndarray:
        """Apply the model to arrays, in evaluation mode and without gradients.

        A language model takes ids [b,n] and returns logits [b,n,vocab]; a classifier takes ids
        [b,n] and lengths [b].
        """
        return self._running().forward(*inputs)

    __call__ = forward

    def encode(self, text: Union[str, bytes]) -> np.ndarray:
        """Return the token ids of a text in the model's vocabulary, int32 [n]."""
        return self._running().encode(text)

    def logits(self, given: Union[str, bytes, Sequence[int]]) -> np.ndarray:
        """Return a language model's logits after each token of a text or of its ids: [n,vocab]."""
        ids = self.encode(given) if isinstance(given, (str, bytes)) else np.asarray(given)
        if ids.ndim != 1:
            raise ValueError(f"logits: the ids are {list(ids.shape)}, not [n]; forward takes [b,n]")
        return self.forward(ids[None])[0]

    def generate(self, prompt: str = "", tokens: int = 200, **options: Any) -> str:
        """Return the prompt with its continuation; options are those of toeplab generate.

        A list repeats an option, True gives it without a value, False and None omit it.
        """
        words = ["generate"]
        # One word for an option with its value, since a prompt may look like another option.
        for name, value in {"prompt": prompt, "tokens": tokens, **options}.items():
            option = "--" + name.replace("_", "-")
            for one in value if isinstance(value, (list, tuple)) else [value]:
                if one is True:
                    words.append(option)
                elif one is not False and one is not None:
                    words.append(f"{option}={one}")
        word, *dir = self._opened
        text = _run(*words, *(["--dir", *dir] if dir else []), "--", word)
        return text[:-1] if text.endswith("\n") else text

    def __repr__(self) -> str:
        count = sum(a.size for a in self.weights.values())
        return f"Model('{self.word}', {len(self.weights)} tensors, {count} numbers)"


def model(word: Words, names: str = "toeplab", dir: Optional[str] = None) -> Model:
    """Open the model of the selected trial, or of a .safetensors file.

    names: the naming of a trial's weights, "toeplab", "tnn-pytorch" or "fairseq".
    """
    if names not in _names_of_weights:
        raise ValueError(f"names is '{names}', not one of {', '.join(_names_of_weights)}")
    if isinstance(word, str) and word.endswith(".safetensors"):
        return Model(word, load(word), [word])
    id = _one(word, dir)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.safetensors"
        _run("export", id, "--weights", str(path), "--names", names, "--dir", _folder(dir))
        return Model(word, load(path), [id, _folder(dir)])
