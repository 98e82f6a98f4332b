"""Journal of group events: rows, the ring with the latest of them, and `why` with explanations."""
