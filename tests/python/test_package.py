"""The package toeplab without PyTorch: operators, files, runs, and the notebook.

TOEPLAB_DIR holds a results folder with quickstart and custom-mixer at scale smoke (python.sh).
"""
import copy
import gc
import io
import json
import os
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest
import weakref
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pandas as pd
import toeplab
from toeplab import _library, operators, store

SOURCE = Path(__file__).resolve().parents[2]
REFERENCE = SOURCE / "tests" / "reference.h5"


def dense(coef: np.ndarray, n: int) -> np.ndarray:
    """T [d,n,n] by the definition."""
    t = np.zeros((coef.shape[1], n, n), np.float32)
    zero = 0 if len(coef) == n else n - 1
    for i in range(n):
        for j in range(n):
            if 0 <= i - j + zero < len(coef):
                t[:, i, j] = coef[i - j + zero]
    return t


class Operators(unittest.TestCase):
    def test_equal_the_definition(self) -> None:
        rng = np.random.default_rng(1)
        for backend in ("naive", "matrix", "fft", "rac", "auto"):
            for rows in (1, 9, 17, 33, 65):
                n = rows if rows in (1, 9, 33) else (rows + 1) // 2
                coef = rng.standard_normal((rows, 3), np.float32)
                x = rng.standard_normal((2, n, 3), np.float32)
                y = toeplab.tno(coef, x, backend)
                t = dense(coef, n)
                np.testing.assert_allclose(y, np.einsum("cij,bjc->bic", t, x), atol=2e-5)
                operator = toeplab.Operator(n, 3, rows == n, backend)
                np.testing.assert_array_equal(operator.dense(coef), t)

    def test_lists_are_arrays(self) -> None:
        y = toeplab.tno([[1.0], [2]], [[[1], [10]]])
        np.testing.assert_allclose(y, [[[1], [12]]], atol=1e-5)

    def test_plans_are_cached_by_the_words_of_their_options(self) -> None:
        def plan(taps: Any) -> toeplab.Operator:
            return operators.plan(8, 1, False, "ski", {"inducing": 4, "taps": taps})

        self.assertIs(plan(3), plan(np.int64(3)))
        plan(1)
        with self.assertRaisesRegex(toeplab.ToeplabError, "true"):
            plan(True)

    def test_gradients_equal_those_of_the_matrix(self) -> None:
        rng = np.random.default_rng(2)
        n, operator = 12, toeplab.Operator(12, 2, True, "rac")
        coef, x, dy = (rng.standard_normal(s, np.float32) for s in ((n, 2), (3, n, 2), (3, n, 2)))
        dcoef, dx, none = operator.gradients(coef, x, dy)
        np.testing.assert_allclose(dx, np.einsum("cij,bic->bjc", dense(coef, n), dy), atol=1e-5)
        want = [(dy[:, k:] * x[:, :n - k]).sum((0, 1)) for k in range(n)]
        np.testing.assert_allclose(dcoef, want, atol=1e-5)
        self.assertEqual(none, [])
        self.assertEqual(operator.gradients(coef, x, dy, need_coef=False)[0], None)

    def test_a_backend_with_parameters_of_its_own(self) -> None:
        operator = toeplab.Operator(16, 2, False, "ski", inducing=4, taps=3)
        self.assertEqual((operator.domain, operator.params), ("warp", [("taps", (3, 2))]))
        coef = np.ones((len(operator.points), 2 * operator.width), np.float32)
        x = np.ones((1, 16, 2), np.float32)
        taps = np.zeros((3, 2), np.float32)
        want = np.einsum("cij,bjc->bic", operator.dense(coef, [taps]), x)
        got = toeplab.tno(coef, x, "ski", causal=False, params=[taps], inducing=4, taps=3)
        np.testing.assert_allclose(got, want, atol=1e-5)
        with self.assertRaisesRegex(ValueError, "has the parameters taps, got 0"):
            operator.apply(coef, x)

    def test_a_copy_shares_the_plan(self) -> None:
        operator = toeplab.Operator(2, 1, True, "naive")
        copies = [copy.copy(operator), copy.deepcopy(operator)]
        del operator
        for one in copies:
            np.testing.assert_array_equal(one.dense([[1.0], [2]]), [[[1, 0], [2, 1]]])

    def test_what_c_would_cut_is_refused(self) -> None:
        for n, d in ((2**64 + 4, 2), (4, -2**63 - 1)):
            with self.assertRaisesRegex(OverflowError, "does not fit in 64 bits"):
                toeplab.Operator(n, d, True)
        for call in (lambda: toeplab.Operator(4, 2, True, "rac\0ski"),
                     lambda: toeplab.Operator(4, 2, False, "ski", inducing="4\0", taps=3),
                     lambda: toeplab.query("SELECT 1\0, 2"),
                     lambda: toeplab.query("SELECT 1", dir=os.environ["TOEPLAB_DIR"] + "\0x"),
                     lambda: toeplab.load(f"{REFERENCE}\0.h5")):
            with self.assertRaisesRegex(ValueError, "must not contain a NUL"):
                call()

    def test_mistakes_are_named(self) -> None:
        coef, x = np.zeros((4, 2), np.float32), np.zeros((1, 4, 2), np.float32)
        for error, text, call in (
                (toeplab.ToeplabError, "did you mean 'rac'", lambda: toeplab.tno(coef, x, "rak")),
                (toeplab.ToeplabError, "coef is", lambda: toeplab.tno(coef[:, :1], x)),
                (toeplab.ToeplabError, "option", lambda: toeplab.tno(coef, x, "rac", spread=1)),
                (toeplab.ToeplabError, "option", lambda: toeplab.tno(coef, x, "rac", spread=[1])),
                (ValueError, "coef has 3 rows", lambda: toeplab.tno(coef[:3], x)),
                (ValueError, "not \\[b,n,d\\]", lambda: toeplab.tno(coef, x[0])),
                (TypeError, "complex64", lambda: toeplab.tno(coef.astype(np.complex64), x))):
            with self.assertRaisesRegex(error, text):
                call()


class Tensors(unittest.TestCase):
    def test_memory_is_shared_both_ways(self) -> None:
        array = np.arange(6, dtype=np.float32).reshape(2, 3)
        t = toeplab.Tensor.of(array)
        view, lent = np.asarray(t), np.from_dlpack(t)
        array[1, 2] = 50
        self.assertEqual((view[1, 2], lent[1, 2], view.shape), (50, 50, (2, 3)))
        self.assertTrue(np.shares_memory(view, array) and np.shares_memory(lent, array))

    def test_integers_fit_or_are_refused(self) -> None:
        for values, dtype in (([-2**31, 2**31 - 1], np.int64), ([2**31 - 1], np.uint64), ([], int)):
            array = np.array(values, dtype)
            self.assertEqual(toeplab.Tensor.of(array).numpy().tolist(), values)
        for values, dtype in (([2**31], np.int64), ([-2**31 - 1], np.int64), ([2**31], np.uint32),
                              ([2**64 - 1], np.uint64)):
            with self.assertRaisesRegex(OverflowError, "do not fit in int32"):
                toeplab.Tensor.of(np.array(values, dtype))
            with self.assertRaisesRegex(OverflowError, "do not fit in int32"):
                toeplab.Tensor.of(np.array(values, dtype), "int32")

    def test_lent_memory_outlives_the_tensor_and_is_given_back(self) -> None:
        tensors = [toeplab.Tensor.of(np.full(1000, 7, np.int32)),
                   toeplab.Tensor.of(np.ones(2, np.float32))]
        alive = [weakref.ref(t) for t in tensors]
        lent, unused = np.from_dlpack(tensors[0]), tensors[1].__dlpack__()
        del tensors
        gc.collect()
        self.assertEqual(int(lent.sum()), 7000)
        self.assertTrue(alive[0]() and alive[1]())
        del lent, unused
        gc.collect()
        self.assertFalse(alive[0]() or alive[1]())

    def test_a_copy_shares_the_memory_and_a_deep_copy_has_its_own(self) -> None:
        t = toeplab.Tensor.of(np.ones(2, np.float32))
        shared, own = copy.copy(t), copy.deepcopy(t)
        t.numpy()[0] = 5
        del t
        self.assertEqual((shared.numpy().tolist(), own.numpy().tolist()), ([5, 1], [1, 1]))


class Library(unittest.TestCase):
    def test_another_library_is_refused_each_time(self) -> None:
        engine = _library._Engine()
        with mock.patch.dict(os.environ, {"TOEPLAB_LIBRARY": "libm.so.6"}):
            for _ in range(2):
                with self.assertRaisesRegex(toeplab.ToeplabError, "libm.so.6 has no function tl_"):
                    engine.load()


class Files(unittest.TestCase):
    def test_hdf5(self) -> None:
        case = toeplab.load(REFERENCE)["layer"]
        self.assertEqual(case["param"]["token_mixer.o.weight"].shape, (3, 6))
        self.assertEqual((case["kind"], case["gamma"]), ("layer", 0.75))
        with self.assertRaisesRegex(toeplab.ToeplabError, "none.h5"):
            toeplab.load("/none.h5")

    def test_damaged_safetensors(self) -> None:
        good = b'{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}'
        for text, data, message in (
                (good, b"1234", None), (good, b"123", "of 3|short|file of"),
                (good, b"12345", "of 5"), (good.replace(b"[1]", b"[2]"), b"1234", "do not fit"),
                (good.replace(b'"F32"', b"9"), b"1234", "no dtype"), (b"{", b"", "a safetensors"),
                (good.replace(b"[0,4]", b"[4,8]"), b"12345678", "gap"),
                (b'{"a":1,"a":2}', b"", "twice"), (b"[]", b"", "begin with"),
                (b'{"a":' * 100000, b"", "nested too deeply")):
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder) / "x.safetensors"
                path.write_bytes(len(text).to_bytes(8, "little") + text + data)
                if message is None:
                    self.assertEqual(toeplab.load(path)["a"].tobytes(), b"1234")
                else:
                    with self.assertRaisesRegex(toeplab.ToeplabError, message):
                        toeplab.load(path)

    def test_tensors_that_none_here_can_hold_are_left_out(self) -> None:
        for kind, shape, size, shown in (("C64", [1], 8, "C64"), ("F4", [2], 1, "F4"),
                                         ("F8_E8M0", [3], 3, "F8_E8M0"), ("F32\0", [1], 4, "F32"),
                                         ("F32", [1] * 7, 4, "7 dimensions")):
            header = json.dumps({
                "b": {"dtype": kind, "shape": shape, "data_offsets": [4, 4 + size]},
                "x": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}).encode()
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder) / "x.safetensors"
                path.write_bytes(len(header).to_bytes(8, "little") + header
                                 + struct.pack("<f", 1.0) + b"x" * size)
                with self.assertWarnsRegex(UserWarning, f"no tensor can hold them: 'b' .{shown}"):
                    self.assertEqual(toeplab.load(path), {"x": 1.0})

    def test_lua_accepts_the_same_safetensors(self) -> None:
        def entry(shape: str = "[1]", place: str = "[0,4]", more: str = "") -> str:
            return f'"a":{{"dtype":"F32","shape":{shape},"data_offsets":{place}{more}}}'

        good = ["{" + entry() + "}", "{" + entry() + "} \n", "{" + entry("[-0,7]", "[0,0]") + "}",
                '{"__metadata__":{"x":"\u007f"},' + entry(more=',"x":null') + "}",
                "{" + entry().replace('"a"', '"\\ud800\\n"') + "}",
                "{" + entry("[1,1,1,1,1,1,1]") + "}", "{" + entry().replace("F32", "C64") + "}",
                "{" + entry().replace("F32", "") + "}"]
        bad = ["[]", " {" + entry() + "}", "\ufeff{}", "{" + entry().replace("a", "\n") + "}",
               "{" + entry().replace('"a"', '"\\q"') + "}", "{\v}", "{" + entry("[1.0]") + "}",
               "{" + entry("[true]") + "}", "{" + entry("{}") + "}", "{" + entry("null") + "}",
               "{" + entry(f"[0,{2**64}]", "[0,0]") + "}", "{" + entry(place="[false,4]") + "}",
               "{" + entry(place="[0,4,4]") + "}", "{" + entry(place="[4,0]") + "}",
               "{" + entry(more=',"x":NaN') + "}",
               "{" + entry() + "," + entry("[0]", "[0,0]") + "}", '{"a":null}', '{"a":[]}',
               *('{"__metadata__":' + m + "," + entry() + "}" for m in ("null", "[]", '{"a":1}'))]
        with tempfile.TemporaryDirectory() as folder:
            paths = [Path(folder) / f"{i}.safetensors" for i in range(len(good) + len(bad))]
            for path, written in zip(paths, good + bad):
                header = written.encode()
                data = b"" if "[0,0]}" in written and "[0,4]" not in written else b"1234"
                path.write_bytes(len(header).to_bytes(8, "little") + header + data)
            code = "for _, p in ipairs { ... } do print((pcall(require('toeplab').load, p))) end"
            lua = subprocess.run([store._program(), "lua", "-e", code, *map(str, paths)],
                                 check=True, stdout=subprocess.PIPE).stdout.decode().split()
            for path, written, by_lua in zip(paths, good + bad, lua):
                try:
                    accepted = toeplab.load(path) is not None
                except toeplab.ToeplabError:
                    accepted = False
                self.assertEqual((accepted, by_lua == "true"), (written in good,) * 2, written)

    def test_elements_that_do_not_fit_are_refused(self) -> None:
        for kind, data, message in (("F64", struct.pack("<d", 1e300), "too large for float32"),
                                    ("BOOL", b"\x9f", "a boolean other than 0 and 1")):
            header = json.dumps({"a": {"dtype": kind, "shape": [1],
                                       "data_offsets": [0, len(data)]}}).encode()
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder) / "x.safetensors"
                path.write_bytes(len(header).to_bytes(8, "little") + header + data)
                with self.assertRaisesRegex(toeplab.ToeplabError, message):
                    toeplab.load(path)


class Runs(unittest.TestCase):
    def test_the_folder_is_the_nearest_with_runs(self) -> None:
        before = os.getcwd()
        with tempfile.TemporaryDirectory() as top:
            os.makedirs(top + "/results/sweeps")
            os.makedirs(top + "/a/b")
            try:
                for where, up in (("/a/b", "../../"), ("/a", "../"), ("", "")):
                    os.chdir(top + where)
                    self.assertEqual(store._nearest(), up + "results")
                os.makedirs(top + "/a/results/sweeps")
                os.chdir(top + "/a/b")
                self.assertEqual(store._nearest(), "../results")
            finally:
                os.chdir(before)

    def test_frames(self) -> None:
        runs = toeplab.runs()
        self.assertEqual(sorted(runs.experiment), ["custom-mixer", "custom-mixer", "quickstart"])
        self.assertTrue((runs.status == "done").all() and (runs["metric.loss"] > 0).all())
        loss = toeplab.metrics("quickstart", "loss")
        self.assertEqual((len(loss), loss.step.max()), (20, 20))
        self.assertEqual(loss.value.iloc[-1], runs[runs.experiment == "quickstart"]
                         ["metric.loss"].iloc[0])
        table = toeplab.table("custom-mixer")
        self.assertEqual(set(table.column), {"parameters", "loss", "bits"})
        count = toeplab.query("SELECT count(*) AS n FROM v_trials WHERE experiment = ?",
                              ["custom-mixer"])
        self.assertEqual(int(count.n[0]), 2)

    def test_words_may_hold_spaces_and_dashes(self) -> None:
        for words, text in (("--help", "'--help' is neither the id of a trial"),
                            ("corpus='a b'", "no trial matches corpus=a b"),
                            (["corpus=a b"], "no trial matches corpus=a b")):
            for read in (toeplab.runs, toeplab.metrics, toeplab.checkpoint, toeplab.model):
                with self.assertRaisesRegex(toeplab.ToeplabError, text):
                    read(words)
        self.assertEqual(len(toeplab.runs(["custom-mixer", "steps>0"])), 2)
        with self.assertRaisesRegex(toeplab.ToeplabError, "--help"):
            toeplab.table("--help")

    def test_inf_nan_and_missing_are_three_things(self) -> None:
        script = """local tl = require "toeplab"
            return tl.experiment "odd" { grid = { model = { "finite", "inf", "nan", "none" } },
              seeds = 3, report = { rows = "model", columns = { "loss" } },
              trial = function(t, c)
                local odd = ({ finite = 0.6, inf = 1 / 0, nan = 0 / 0 })[c.model]
                t:log { other = 1.0, loss = c.seed < 3 and 0.5 or odd }
              end }"""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "odd.lua"
            path.write_text(script)
            store._run("run", str(path), "--dir", folder)
            runs = toeplab.runs("odd", dir=folder)
            means = runs.groupby("config.model")["metric.loss"].mean()
            values = toeplab.metrics("odd", "loss", dir=folder)
            self.assertEqual([means["none"], means["inf"]], [0.5, float("inf")])
            self.assertAlmostEqual(means["finite"], 1.6 / 3)
            self.assertEqual((runs["metric.loss"].isna().sum(), len(values)), (1, 11))
            spoilt = values.groupby("seed").value.mean().astype(float)
            self.assertEqual(spoilt[1], 0.5)
            if int(pd.__version__.split(".")[0]) >= 2:  # older ones leave NaN out of groups' means
                self.assertTrue(np.isnan(float(means.astype(float)["nan"])))
                self.assertTrue(np.isnan(spoilt[3]))

    def test_logged_tensors_are_one_array(self) -> None:
        script = """local tl = require "toeplab"
            return tl.experiment "kept" { fixed = { steps = 6 }, trial = function(t, c)
                for step in t:steps(c.steps) do
                  if step % 2 == 0 then
                    t:log { step = tl.range(1, 3) * step, ids = tl.ids { { 1, -step } } }
                  end
                end
              end }"""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "kept.lua"
            path.write_text(script)
            store._run("run", str(path), "--dir", folder)
            steps, values = toeplab.tensors("@last", "step", dir=folder)
            self.assertEqual((steps.tolist(), values.dtype, values.tolist()),
                             ([2, 4, 6], np.float32, [[2, 4, 6], [4, 8, 12], [6, 12, 18]]))
            ids = toeplab.tensors("kept", "ids", dir=folder)[1]
            self.assertEqual((ids.dtype, ids.tolist()),
                             (np.int32, [[[1, -2]], [[1, -4]], [[1, -6]]]))
            with self.assertRaisesRegex(toeplab.ToeplabError, "no tensor 'x'; it has: ids, step"):
                toeplab.tensors("@last", "x", dir=folder)

    def test_values_and_columns_of_a_query(self) -> None:
        values = [np.int64(7), np.float32(0.5), np.bool_(True), np.str_("a"), None, -2**63]
        row = toeplab.query("SELECT ?, ?, ?, ?, ?, ?", values).iloc[0].tolist()
        self.assertEqual(row, [7, 0.5, 1, "a", None, -2**63])
        for sql in ("SELECT id, seed AS s FROM v_trials WHERE id = ?;",
                    "WITH q AS (SELECT 1 AS id, 2 AS s) SELECT * FROM q WHERE id = ? -- none"):
            none = toeplab.query(sql, ["x"])
            self.assertEqual((len(none), list(none.columns)), (0, ["id", "s"]))
        for error, value in ((OverflowError, 2**63), (TypeError, b"a"), (TypeError, [1]),
                             (TypeError, 1j)):
            with self.assertRaises(error):
                toeplab.query("SELECT ?", [value])

    def test_checkpoints_and_models(self) -> None:
        state = toeplab.checkpoint("quickstart")
        self.assertEqual(state["step"], 20)
        model = toeplab.model("quickstart")
        np.testing.assert_array_equal(model.weights["embed.weight"], state["model"]["embed.weight"])
        with self.assertRaisesRegex(toeplab.ToeplabError, "published code has no rpe_input"):
            toeplab.model("quickstart", names="fairseq")
        text = model.generate("the", tokens=5, temperature=0)
        self.assertTrue(text.startswith("the") and len(text) == 8, text)
        stopped = model.generate("the", tokens=50, temperature=0, stop=["q", text[3]], last=True,
                                 top_k=None, json=False)
        self.assertEqual(stopped, "the")
        with self.assertRaisesRegex(ValueError, "kind is 'last', not one of best, checkpoint"):
            toeplab.checkpoint("quickstart", kind="last")
        with self.assertRaisesRegex(toeplab.ToeplabError, "the prompt: character '-'"):
            model.generate("--help")  # a prompt, not an option

    def test_a_model_computes_as_in_lua(self) -> None:
        code = """local tl = require "toeplab"
            local model, vocab = tl.model(arg[1])
            tl.save(arg[2], model(vocab:encode "the he":reshape(1, -1)))"""
        with tempfile.TemporaryDirectory() as folder:
            out, weights = folder + "/y.npy", folder + "/w.safetensors"
            subprocess.run([store._program(), "lua", "-e", code, "quickstart", out], check=True)
            want = np.load(out)
            subprocess.run([store._program(), "export", "quickstart", "--weights", weights],
                           check=True, stdout=subprocess.DEVNULL)
            for model in (toeplab.model("quickstart"), toeplab.model(weights)):
                ids = model.encode("the he")
                self.assertEqual((ids.shape, ids.dtype), ((6,), np.int32))
                for logits in (model.forward(ids[None]), model(ids.astype(np.int64)[None])):
                    np.testing.assert_array_equal(logits, want)
                np.testing.assert_array_equal(model.logits("the he"), want[0])
                np.testing.assert_array_equal(model.logits(ids.tolist()), want[0])

    def test_inputs_that_a_model_cannot_take_are_named(self) -> None:
        model = toeplab.model("quickstart")
        for error, text, call in (
                (toeplab.ToeplabError, "^gather: index 1000",
                 lambda: model.forward([[1000]])),
                (toeplab.ToeplabError, "^character '#'", lambda: model.logits("#")),
                (TypeError, "type <U1", lambda: model.forward("x")),
                (ValueError, r"are \[1, 1\], not \[n\]", lambda: model.logits([[1]]))):
            with self.assertRaisesRegex(error, text):
                call()
        self.assertEqual(model.logits([1]).shape[0], 1)  # it computes on
        session = model._session
        session._process.kill()
        session._process.wait()
        with self.assertRaisesRegex(toeplab.ToeplabError, "the program has ended"):
            session.forward(np.array([[1]]))
        self.assertEqual(model.logits([1]).shape[0], 1)  # a new process computes on

    def test_mistakes_are_named(self) -> None:
        for text, call in (("is neither the id of a trial", lambda: toeplab.runs("nonsense")),
                           ("^no trial matches loss<-1", lambda: toeplab.runs("loss<-1")),
                           ("no metric 'los'; they have: .*loss",
                            lambda: toeplab.metrics("quickstart", "los")),
                           ("selects 2 trials", lambda: toeplab.checkpoint("custom-mixer")),
                           ("no such table", lambda: toeplab.query("SELECT 1 FROM no_table")),
                           ("open failed", lambda: toeplab.query("SELECT 1", dir="/nowhere"))):
            with self.assertRaisesRegex(toeplab.ToeplabError, text):
                call()


class Notebook(unittest.TestCase):
    def test_its_cells_run(self) -> None:
        cells = json.loads((SOURCE / "python" / "example.ipynb").read_text())["cells"]
        code = ["".join(c["source"]) for c in cells if c["cell_type"] == "code"]
        self.assertGreater(len(code), 3)
        names: dict = {}
        with redirect_stdout(io.StringIO()):
            for i, text in enumerate(code):
                exec(compile(text, f"cell {i + 1}", "exec"), names)


class Installation(unittest.TestCase):
    def test_pip_installs_from_the_checkout(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            copy = Path(folder).resolve() / "checkout" / "python"  # pip writes beside the source
            shutil.copytree(SOURCE / "python", copy)
            made = subprocess.run(
                [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-build-isolation",
                 "--no-index", "--target", folder + "/site", str(copy)], check=False,
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
            if b"No module named pip" in made.stdout or b"setuptools" in made.stdout:
                self.skipTest("pip or setuptools is missing")
            self.assertEqual(made.returncode, 0, made.stdout.decode())
            package = Path(folder) / "site" / "toeplab"
            self.assertIn(str(copy.parent / "build"), (package / "_checkout.py").read_text())
            for file in ("py.typed", "session.lua"):
                self.assertTrue((package / file).exists())


if __name__ == "__main__":
    unittest.main()
