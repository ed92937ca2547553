"""Gradients that PyTorch has as operators of their own."""
