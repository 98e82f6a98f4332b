"""The driver's Python: sessions with their Python and Java, listeners of queries, and orderly stops."""
