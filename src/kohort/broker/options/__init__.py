"""The options of a broker, from Python or from a file."""
