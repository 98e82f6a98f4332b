"""The doors for event loops: the same machines, options and names as the blocking ones, and no thread."""
