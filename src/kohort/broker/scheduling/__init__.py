"""Short turns of the loop: long work in slices, many rows in parts, the disk on threads, and a watch."""
