"""Members of simulated groups, each as a stock client of its kind behaves."""
