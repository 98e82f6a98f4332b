"""Offsets as the consumer's machine asks for them: commits over committed offsets and over queries by timestamp."""
