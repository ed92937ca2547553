"""Operators that read and write by index."""
