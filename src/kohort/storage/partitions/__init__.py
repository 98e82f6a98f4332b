"""One partition's log over its segments, and what it remembers and asks of what is appended."""
