"""Topics made, changed and deleted, in the catalogue and on disk."""
