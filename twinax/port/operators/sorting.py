"""Operators that order entries."""
