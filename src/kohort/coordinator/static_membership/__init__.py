"""Static groups, with an instance id for every member: clocks, mode, and code for both protocols."""
