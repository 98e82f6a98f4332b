"""What a broker can be told, in Python or by a file."""
