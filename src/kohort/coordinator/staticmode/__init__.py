"""Groups whose members are those with names: their clocks, their mode, what both protocols share of it."""
