"""Trains a layer of tnn-pytorch on the CPU with Toeplab's operator through autograd."""
import sys

import toeplab
import torch

try:
    from tnn_pytorch import TnnLayer  # https://github.com/Doraemonzzz/tnn-pytorch
except ImportError:
    from tnn_layer import TnnLayer  # the same layer, beside this file


def train(backend=None, steps=60, n=32, dim=8):
    """Learns to sum the last three inputs; returns the losses and the first gradients."""
    torch.manual_seed(0)
    layer, losses, gradients = TnnLayer(dim, 1, 16, 2 * dim, causal=True), [], None
    if backend:
        toeplab.use_backend(layer, backend)
    optimizer = torch.optim.Adam(layer.parameters(), lr=1e-2)
    for _ in range(steps):
        x = torch.randn(8, n, dim)
        target = x + x.roll(1, dims=1) + x.roll(2, dims=1)
        loss = torch.nn.functional.mse_loss(layer(x)[:, 2:], target[:, 2:])
        optimizer.zero_grad()
        loss.backward()
        gradients = gradients or {k: p.grad.clone() for k, p in layer.named_parameters()}
        optimizer.step()
        losses.append(loss.item())
    return losses, gradients


if __name__ == "__main__":
    print("loss {:.4f} -> {:.4f}".format(*train(*sys.argv[1:2] or ["rac"])[0][::59]))
