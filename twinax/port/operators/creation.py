"""Operators that make arrays."""
