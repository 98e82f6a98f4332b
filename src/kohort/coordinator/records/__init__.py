"""Records about groups: their types, the codec of `__consumer_offsets`, and a fast reader for a restart."""
