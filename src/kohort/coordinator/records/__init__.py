"""Records about groups: their types, the codec of `__consumer_offsets`, and the fast reader of a restart."""
