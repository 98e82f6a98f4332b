"""Work on closed segments while a broker serves: compacted, and read again for damage."""
