"""Static groups, whose members all have instance ids: clocks, mode, and code for both protocols."""
