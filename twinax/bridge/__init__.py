"""Arrays, parameters, optimizer state and weight files between PyTorch, JAX and NumPy."""

from twinax.bridge._arrays import host_array
from twinax.bridge._exchange import NarrowingWarning, to_jax, to_numpy, to_torch
from twinax.bridge._flax import KeyReport, Match, load_flax
from twinax.bridge._flax_files import read_flax
from twinax.bridge._moments import load_moments_into_torch, moments_from_optax, moments_from_torch, optax_from_moments
from twinax.bridge._sync import ParameterSync
from twinax.bridge.conversion import Conversion, ForwardCheck, Moved, convert
from twinax.bridge.weight_files import load_state_dict, load_weights, save_weights, state_dict

__all__ = [
    "Conversion",
    "ForwardCheck",
    "KeyReport",
    "Match",
    "Moved",
    "NarrowingWarning",
    "ParameterSync",
    "convert",
    "host_array",
    "load_flax",
    "load_moments_into_torch",
    "load_state_dict",
    "load_weights",
    "moments_from_optax",
    "moments_from_torch",
    "optax_from_moments",
    "read_flax",
    "save_weights",
    "state_dict",
    "to_jax",
    "to_numpy",
    "to_torch",
]
