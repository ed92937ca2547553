"""Recurrent layers, by a scan over time."""
