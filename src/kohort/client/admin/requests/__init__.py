"""The admin client's decisions: a machine without clock, loop or thread."""
