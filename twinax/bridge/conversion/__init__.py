"""Modules of PyTorch, Flax linen, Flax nnx and Equinox turned into each other, layer by layer."""

from twinax.bridge.conversion._conversion import Conversion, ForwardCheck, Moved
from twinax.bridge.conversion._convert import convert

__all__ = ["Conversion", "ForwardCheck", "Moved", "convert"]
