"""Offline agents put together with what runs them: as an object for PyTorch, as functions for JAX, from another run."""

from twinax.agents._objects import JaxAgent, TorchAgent, jax_agent
from twinax.agents._pretrained import load_pretrained

__all__ = ["JaxAgent", "TorchAgent", "jax_agent", "load_pretrained"]
