"""Toeplab in Python: Toeplitz neural operators for NumPy and PyTorch, and stored runs.

    y = toeplab.tno(coef, x, backend="rac")     # arrays, or tensors of PyTorch with gradients
    toeplab.runs()                              # the trials of a results folder, a DataFrame
    toeplab.metrics("@last")                    # the logged values of a trial, a DataFrame
    toeplab.tensors("@last", "kernel")          # a logged tensor: its steps, and one array of all
    toeplab.checkpoint("3f9c1a")["model"]       # the parameters of a trial, arrays by name
    toeplab.model("3f9c1a").logits("In the")    # the outputs of its model, an array [n,vocab]

See docs/python.md.
"""
from ._library import ToeplabError, threads
from .files import load
from .operators import Operator, tno
from .store import Model, checkpoint, metrics, model, query, runs, table, tensors
from .tensor import Tensor

__all__ = [
    "Model", "Operator", "Tensor", "ToeplabError", "checkpoint", "load", "metrics", "model",
    "query", "runs", "table", "tensors", "threads", "tno", "use_backend",
]
__version__ = "0.1.0"


def use_backend(module, backend: str = "rac", **options):
    """Make the TNOs in a PyTorch module of tnn-pytorch compute with a backend of Toeplab.

    Returns the module. See toeplab.autograd.use_backend.
    """
    from .autograd import use_backend as use

    return use(module, backend, **options)
