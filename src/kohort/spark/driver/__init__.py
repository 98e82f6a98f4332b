"""Helpers for the driver's Python: sessions with their Python and Java, query listeners, and stops."""
