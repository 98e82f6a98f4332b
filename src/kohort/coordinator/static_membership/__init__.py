"""Static groups, in which every member has an instance id: the mode, and clocks, for both protocols."""
