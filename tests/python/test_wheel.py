"""The installed wheel against a program: operators, gradients, models and runs, bit for bit.

TOEPLAB_PROGRAM is a program that was compiled for one processor; without it, the wheel's own
program is compared with. TOEPLAB_DIR is a results folder with quickstart at scale smoke, WEIGHTS
its model in a .safetensors file, ENGINE the file of the engine that this processor should take.
"""
import os
import subprocess
import tempfile
import unittest
from pathlib import Path
from typing import Callable

import numpy as np
import toeplab
from toeplab import _library, store

try:
    import torch
except ImportError:
    torch = None

PACKAGE = Path(toeplab.__file__).resolve().parent
BACKENDS = {"naive": {}, "matrix": {}, "rac": {}, "auto": {}, "fd": {},
            "ski": {"inducing": 16, "taps": 3}}
ANY_COMPILER = ("naive", "rac")  # which compute the same bits however they were compiled
OPERATE = """local tl = require "toeplab"
    local folder, backend, n, d, causal, options = table.unpack(arg)
    local function read(name) return tl.load(folder .. "/" .. name .. ".npy") end
    local operator = tl.tno(backend, tonumber(n), tonumber(d), causal == "true",
      options == "" and {} or { inducing = 16, taps = 3 })
    local leaves = { read "coef", read "x" }
    for i = 1, #operator:params() do leaves[i + 2] = read("param" .. i) end
    for _, t in ipairs(leaves) do t:require_grad() end
    local y = operator:apply(leaves[1], { table.unpack(leaves, 3) }, leaves[2])
    tl.save(folder .. "/y.npy", y)
    y:backward(read "dy")
    for i, t in ipairs(leaves) do tl.save(folder .. "/grad" .. i .. ".npy", t:grad()) end"""


def program() -> str:
    return os.environ.get("TOEPLAB_PROGRAM") or store._program()


def lua(code: str, *words: str) -> str:
    return subprocess.run([program(), "lua", "-e", code, *words], check=True,
                          stdout=subprocess.PIPE).stdout.decode()


class Case:
    """Coefficients, input and gradient of an operator, and what the program makes of them."""

    def __init__(self, backend: str, n: int, causal: bool) -> None:
        rng, d = np.random.default_rng(n), 5
        self.options = BACKENDS[backend]
        self.operator = toeplab.Operator(n, d, causal, backend, **self.options)

        def normal(*shape: int) -> np.ndarray:
            return rng.standard_normal(shape, np.float32)

        points = len(self.operator.points)
        self.params = [normal(*shape) for _, shape in self.operator.params]
        self.coef, self.x = normal(points, self.operator.width * d), normal(3, n, d)
        self.dy = normal(3, n, d)
        with tempfile.TemporaryDirectory() as folder:
            given = {"coef": self.coef, "x": self.x, "dy": self.dy}
            given.update({f"param{i + 1}": p for i, p in enumerate(self.params)})
            for name, array in given.items():
                np.save(f"{folder}/{name}.npy", array)
            lua(OPERATE, folder, self.operator.backend, str(n), str(d), str(causal).lower(),
                "options" if self.options else "")
            self.y = np.load(folder + "/y.npy")
            self.grads = [np.load(f"{folder}/grad{i + 1}.npy")
                          for i in range(2 + len(self.params))]


class Wheel(unittest.TestCase):
    def each_case(self, check: Callable[[Case], None]) -> None:
        for backend in ANY_COMPILER if "TOEPLAB_PROGRAM" in os.environ else BACKENDS:
            for n in (24, 64, 256) if backend == "fd" else (1, 7, 64, 300):  # others need FFTW
                for causal in (True, False):
                    with self.subTest(backend=backend, n=n, causal=causal):
                        check(Case(backend, n, causal))

    def test_everything_is_in_the_package(self) -> None:
        _library.engine.load()
        self.assertEqual(_library.engine.path.parent, PACKAGE / "lib")
        self.assertEqual(Path(store._program()).resolve(), PACKAGE / "bin" / "toeplab")
        with open("/proc/self/maps", encoding="ascii") as maps:
            loaded = {Path(line.split(maxsplit=5)[5].rstrip()) for line in maps if ".so" in line}
        ours = [path for path in loaded if path.name.startswith(("libtoeplab", "libopenblas-"))]
        self.assertEqual(len(ours), 3, ours)
        for path in ours:
            self.assertIn(PACKAGE, path.parents)
        if "ENGINE" in os.environ:
            self.assertIn(PACKAGE / os.environ["ENGINE"], ours)

    def test_nothing_under_the_gpl_is_there(self) -> None:
        self.assertFalse([p for p in PACKAGE.rglob("*") if "fftw" in p.name or p.name == "fft.so"])
        with self.assertRaisesRegex(toeplab.ToeplabError, "fft"):
            toeplab.Operator(4, 1, True, "fft")

    def test_operators_and_gradients_are_those_of_the_program(self) -> None:
        def check(case: Case) -> None:
            y = case.operator.apply(case.coef, case.x, case.params).numpy()
            np.testing.assert_array_equal(y, case.y)
            dcoef, dx, dparams = case.operator.gradients(case.coef, case.x, case.dy, case.params)
            for got, want in zip((dcoef, dx, *dparams), case.grads):
                np.testing.assert_array_equal(got.numpy(), want)

        self.each_case(check)

    @unittest.skipUnless(torch, "PyTorch is missing")
    def test_gradients_in_pytorch_are_those_of_the_program(self) -> None:
        def check(case: Case) -> None:
            leaves = [torch.tensor(a, requires_grad=True)
                      for a in (case.coef, case.x, *case.params)]
            y = toeplab.tno(leaves[0], leaves[1], case.operator.backend,
                            causal=case.operator.causal, params=leaves[2:], **case.options)
            np.testing.assert_array_equal(y.detach().numpy(), case.y)
            y.backward(torch.from_numpy(case.dy))
            for leaf, want in zip(leaves, case.grads):
                np.testing.assert_array_equal(leaf.grad.numpy(), want)

        self.each_case(check)

    @unittest.skipIf("TOEPLAB_PROGRAM" in os.environ, "its products of matrices may be others")
    def test_models_compute_as_in_the_program(self) -> None:
        code = """local tl = require "toeplab"
            local model, vocab = tl.model(arg[1])
            tl.save(arg[2], model(vocab:encode "the he":reshape(1, -1)))"""
        for word in ("quickstart", os.environ["WEIGHTS"]):
            with tempfile.TemporaryDirectory() as folder:
                lua(code, word, folder + "/y.npy")
                want = np.load(folder + "/y.npy")
            model = toeplab.model(word)
            np.testing.assert_array_equal(model.logits("the he"), want[0])
            np.testing.assert_array_equal(model.forward(model.encode("the he")[None]), want)
            self.assertGreater(len(model.generate("the", tokens=5)), 3)

    def test_runs_are_frames(self) -> None:
        runs = toeplab.runs("quickstart")
        self.assertEqual((len(runs), runs.status[0]), (1, "done"))
        self.assertEqual(toeplab.metrics("quickstart", "loss").value.iloc[-1],
                         runs["metric.loss"][0])
        state = toeplab.checkpoint("quickstart")["model"]
        weights = toeplab.load(os.environ["WEIGHTS"])
        np.testing.assert_array_equal(weights["embed.weight"], state["embed.weight"])


if __name__ == "__main__":
    unittest.main()
