"""The target assignment of a KIP-848 group: when there is a new one, who computes it, and what it is."""
