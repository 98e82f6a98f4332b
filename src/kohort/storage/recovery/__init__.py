"""The start of a partition from its folder, and the files that make it short."""
