"""Members of simulated groups; each behaves as a stock client of its kind."""
