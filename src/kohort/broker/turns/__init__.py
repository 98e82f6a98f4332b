"""How the loop's turns stay short: long work in slices, many rows by and by, the disk on threads, and a watch."""
