"""PyTorch and Toeplab: gradients through our operators, and weights that go there and back.

Skipped where PyTorch is missing.
"""
import json
import os
import subprocess
import sys
import tempfile
import unittest
import warnings
from pathlib import Path

import numpy as np
import toeplab
from toeplab import store

try:
    import torch
    import torch.utils.checkpoint
except ImportError:
    torch = None

SOURCE = Path(__file__).resolve().parents[2]
REFERENCE = SOURCE / "tests" / "reference.h5"


def lua(code: str, *words: str) -> str:
    """What a Lua script prints."""
    return subprocess.run([store._program(), "lua", "-e", code, *words], check=True,
                          stdout=subprocess.PIPE).stdout.decode()


def distance(a, b) -> float:
    """The largest difference, relative to the largest entry of b."""
    a, b = a.detach(), b.detach()
    return float((a - b).abs().max() / b.abs().max().clamp_min(1e-30))


def recorded(name: str):
    """A case of the published code: the layer or model with its parameters, and the case."""
    from tnn_layer import Tnn, TnnLayer

    case = toeplab.load(REFERENCE)[name]
    sizes = dict(rpe_embedding=3, glu_dim=case["glu_dim"], expand_ratio=case["expand"],
                 gamma=case["gamma"], rpe_layers=1)
    module = Tnn(case["vocab"], case["layers"], case["dim"], affine=False, **sizes) \
        if name == "train" else TnnLayer(case["dim"], 1, causal=True, **sizes)
    state = {k: torch.from_numpy(v.copy()) for k, v in case["param"].items()}
    module.load_state_dict(state)
    return module, case


@unittest.skipIf(torch is None, "PyTorch is missing")
class Torch(unittest.TestCase):
    def test_the_peer_of_bench_cuts_a_batch_that_does_not_fit(self) -> None:
        code = '''
import torch, torch_peer
def step(parts):
    tried.append(parts)
    if parts < fits: raise torch.cuda.OutOfMemoryError("out of memory")
for fits in 1, 3, 9:
    tried, run = [], torch_peer.InParts(step, 6)
    for _ in range(2):
        try: run()
        except torch.cuda.OutOfMemoryError: tried.append("full")
    print(tried, run.parts)
'''
        out = subprocess.run([sys.executable, "-c", code, "1"], check=True, input=b"",
                             stdout=subprocess.PIPE,
                             env={**os.environ, "PYTHONPATH": str(SOURCE / "benches")}).stdout
        self.assertEqual(out.decode().splitlines()[1:], [
            "[1, 1] 1", "[1, 2, 4, 4] 4", "[1, 2, 4, 6, 'full', 6, 'full'] 6"])

    def test_the_layer_is_the_published_one(self) -> None:
        layer, case = recorded("layer")
        x = torch.from_numpy(case["x"].copy()).requires_grad_()
        y = layer(x)
        y.backward(torch.from_numpy(case["dy"].copy()))
        self.assertLess(distance(y, torch.from_numpy(case["y"])), 1e-5)
        self.assertLess(distance(x.grad, torch.from_numpy(case["dx"])), 1e-5)

    def test_gradients_through_our_operator_equal_those_of_pytorch(self) -> None:
        from tnn_layer import TnnLayer

        for backend in ("rac", "fft", "matrix", "naive", "auto"):
            for causal in (True, False):
                torch.manual_seed(3)
                layer = TnnLayer(8, 2, rpe_embedding=8, glu_dim=8, causal=causal, gamma=0.95)
                x, dy = torch.randn(2, 40, 8), torch.randn(2, 40, 8)
                found = []
                for ours in (False, True):
                    if ours:
                        toeplab.use_backend(layer, backend)
                    inputs = x.clone().requires_grad_()
                    layer.zero_grad()
                    y = layer(inputs)
                    y.backward(dy)
                    found.append([y.detach(), inputs.grad] + [
                        p.grad.clone() for p in layer.parameters() if p.requires_grad])
                for ours, theirs in zip(found[1], found[0]):
                    self.assertLess(distance(ours, theirs), 1e-5, backend)

    def test_second_derivatives_equal_differences(self) -> None:
        from toeplab.autograd import TNO

        torch.manual_seed(1)
        for backend, causal, options in (("naive", True, {}), ("rac", False, {}), ("fd", True, {}),
                                         ("fft", True, {}), ("ski", False, {"inducing": 4,
                                                                            "taps": 3})):
            operator = toeplab.Operator(6, 2, causal, backend, **options)
            coef = torch.randn(len(operator.points), 2 * operator.width)
            inputs = [coef, torch.randn(2, 6, 2), *(torch.randn(s) for _, s in operator.params)]
            inputs = [t.requires_grad_() for t in inputs]

            def apply(*tensors):
                return TNO.apply(operator, *tensors)

            # A product has no higher terms, so that long steps lose nothing to float32.
            how = {"eps": 0.25, "atol": 2e-3, "rtol": 2e-3}
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of inputs that are not float64
                torch.autograd.gradcheck(apply, inputs, **how)
                torch.autograd.gradgradcheck(apply, inputs, **how)

    def test_a_penalty_of_gradients_equals_that_of_pytorch(self) -> None:
        from tnn_layer import TnnLayer

        torch.manual_seed(4)
        layer = TnnLayer(8, 2, rpe_embedding=8, glu_dim=8, causal=True, gamma=0.95)
        x, found = torch.randn(2, 12, 8), []
        for ours in (False, True):
            if ours:
                toeplab.use_backend(layer, "rac")
            layer.zero_grad()
            inputs = x.clone().requires_grad_()
            dx, = torch.autograd.grad(layer(inputs).square().sum(), inputs, create_graph=True)
            dx.square().sum().backward()
            found.append([p.grad.clone() for p in layer.parameters() if p.requires_grad])
        for ours, theirs in zip(found[1], found[0]):
            self.assertLess(distance(ours, theirs), 1e-4)

    def test_results_are_freed_while_an_error_is_raised(self) -> None:
        coef, x = torch.ones(4, 2), torch.ones(1, 4, 2, requires_grad=True)
        for made in (lambda: toeplab.tno(coef, x, "naive"),
                     lambda: torch.from_dlpack(toeplab.Tensor.of(np.ones(8, np.float32)))):
            with self.assertRaisesRegex(RuntimeError, "is invalid for input of size 8"):
                made().view(3, 7)
        torch.utils.checkpoint.checkpoint(
            lambda t: toeplab.tno(coef, t.sin(), "naive").exp() * 2, x,
            use_reentrant=False).sum().backward()
        self.assertEqual(x.grad.shape, x.shape)

    def test_compute_equals_the_transforms_at_every_length(self) -> None:
        from tnn_layer import Tno

        from toeplab.autograd import compute

        for n in (1, 2, 3, 8):
            for length in (n + 1, 2 * n):  # causal or not
                a = torch.randn(2, length, 3)
                for x in (torch.randn(2, 2, n, 3), torch.ones(2, 2, n, 1)):
                    self.assertLess(distance(compute(x, a), Tno.compute(None, x, a, -2, n)), 1e-5)

    def test_the_script_of_30_lines_trains_as_pytorch_does(self) -> None:
        script = SOURCE / "python" / "examples" / "train_layer.py"
        lines = [t for t in script.read_text().splitlines() if t.strip()]
        self.assertLessEqual(len(lines), 30)
        alone = {**os.environ, "PYTHONPATH": str(SOURCE / "python")}
        printed = subprocess.run([sys.executable, str(script)], check=True, env=alone,
                                 stdout=subprocess.PIPE).stdout.decode()
        self.assertRegex(printed, r"^loss 1\.\d+ -> 0\.\d+\n$")
        from train_layer import train

        (ours, gradients), (theirs, wanted) = train("rac"), train(None)
        for name, gradient in gradients.items():
            self.assertLess(distance(gradient, wanted[name]), 1e-5, name)
        self.assertLess(ours[-1], 0.6 * ours[0])
        np.testing.assert_allclose(ours, theirs, rtol=1e-3)

    def test_results_and_arguments_share_memory(self) -> None:
        from toeplab.autograd import TNO

        operator = toeplab.Operator(4, 2, True, "naive")
        coef, x = torch.ones(4, 2), torch.ones(1, 4, 2)
        y = toeplab.Tensor.of(x.numpy())
        self.assertEqual(y.data_pointer, x.data_ptr())
        self.assertEqual(torch.from_dlpack(y).data_ptr(), x.data_ptr())
        self.assertEqual(TNO.apply(operator, coef, x)[0, :, 0].tolist(), [1, 2, 3, 4])
        turned = torch.ones(2, 4).T.requires_grad_()  # not contiguous
        toeplab.tno(turned, x, "naive").sum().backward()
        self.assertEqual(turned.grad[:, 0].tolist(), [4, 3, 2, 1])

    def test_mistakes_are_named(self) -> None:
        coef, x = torch.ones(4, 2), torch.ones(1, 4, 2)
        with self.assertRaisesRegex(TypeError, "x is torch.float64"):
            toeplab.tno(coef, x.double())
        with self.assertRaisesRegex(TypeError, "coef is a ndarray"):
            toeplab.tno(coef.numpy(), x)
        with self.assertRaisesRegex(ValueError, "Linear has no Tno"):
            toeplab.use_backend(torch.nn.Linear(2, 2))

    def test_a_model_of_pytorch_loads_here_and_gives_the_same_loss(self) -> None:
        model, case = recorded("train")
        ids = torch.from_numpy(case["ids"][0]).long()
        with torch.no_grad():
            for p in model.parameters():  # another model than the recorded one
                p += 0.1 * torch.randn_like(p) if p.requires_grad else 0
        loss = model.loss(ids).item()
        with tempfile.TemporaryDirectory() as folder:
            np.savez(folder + "/w.npz", **{k: v.numpy() for k, v in model.state_dict().items()})
            np.save(folder + "/ids.npy", ids.numpy())
            sizes = {k: v for k, v in case.items() if isinstance(v, (int, float, str))}
            found = float(lua("""local tl, folder, sizes = require "toeplab", ...
                local a = require("toeplab.base.json").decode(sizes)
                a.causal, a.tied = true, true
                local model = tl.published.module("train", a, tl.load(folder .. "/w.npz"))
                local ids = tl.load(folder .. "/ids.npy")
                local inputs, targets = tl.train.split(ids)
                io.write(("%.9g"):format(tl.train.loss(model, inputs, targets):item()))""", folder,
                              json.dumps(sizes)))
        self.assertAlmostEqual(found, loss, delta=1e-5 * loss)

    def test_a_model_of_ours_loads_in_pytorch_and_gives_the_same_loss(self) -> None:
        from tnn_layer import Tnn

        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "model.safetensors"
            found = float(lua("""local tl, path = require "toeplab", ...
                local model = tl.models.tnn_lm { vocab = 11, layers = 2, dim = 6, glu_dim = 5,
                  rpe_dim = 4, rpe_layers = 2, decay = 0.9 }
                tl.save(path, tl.published.dictionary("train", model))
                local inputs, targets = tl.train.split(tl.ids { { 1, 5, 2, 9, 0, 3 } })
                io.write(("%.9g"):format(tl.train.loss(model, inputs, targets):item()))""",
                              str(path)))
            state = {k: torch.from_numpy(v.copy()) for k, v in toeplab.load(path).items()}
            model = Tnn(11, 2, 6, rpe_embedding=4, glu_dim=5, rpe_layers=2, gamma=0.5)
            model.load_state_dict(state)  # strict: every name fits
            loss = model.loss(torch.tensor([[1, 5, 2, 9, 0, 3]])).item()
        self.assertAlmostEqual(found, loss, delta=1e-5 * loss)

    def test_safetensors_of_pytorch_and_ours_are_alike(self) -> None:
        try:
            from safetensors.torch import load_file, save_file
        except ImportError:
            self.skipTest("the package safetensors is missing")
        with tempfile.TemporaryDirectory() as folder:
            theirs, ours = folder + "/theirs.safetensors", folder + "/ours.safetensors"
            tensors = {"a": torch.randn(3, 2), "b": torch.randn(5).bfloat16(),
                       "c": torch.arange(4), "d": torch.randn(2).half()}
            save_file(tensors, theirs)
            lua("""local tl, from, to = require "toeplab", ...
                tl.save(to, (tl.load(from)), { bf16 = true })""", theirs, ours)
            back, read = load_file(ours), toeplab.load(theirs)
            for name, t in tensors.items():
                self.assertTrue(torch.equal(back[name].float(), t.bfloat16().float()), name)
                np.testing.assert_array_equal(read[name], t.float().numpy())


if __name__ == "__main__":
    unittest.main()
