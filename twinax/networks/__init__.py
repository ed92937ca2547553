"""Networks, each defined once: the framework of their leaves decides where they run."""

from twinax.networks._layers import ACTIVATIONS, ActingLinear, KHot, Linear, acting, activation
from twinax.networks._mlp import MLP, Ensemble, input_gradient, perceptron
from twinax.networks._noisy import NoisyLinear
from twinax.networks._torch_module import as_torch_module
from twinax.networks._trees import ema, frozen, num_parameters

__all__ = [
    "ACTIVATIONS",
    "MLP",
    "ActingLinear",
    "Ensemble",
    "KHot",
    "Linear",
    "NoisyLinear",
    "acting",
    "activation",
    "as_torch_module",
    "ema",
    "frozen",
    "input_gradient",
    "num_parameters",
    "perceptron",
]
