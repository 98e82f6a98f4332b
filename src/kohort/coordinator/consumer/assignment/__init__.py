"""The target assignment of a KIP-848 group: its deadlines, its assignors and its content."""
