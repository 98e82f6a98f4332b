"""How a start makes a partition of what its folder has, and what is kept to make that short."""
