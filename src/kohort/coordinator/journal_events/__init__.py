"""Journal entries of decisions: `reporter` reads each decision and describes its records."""
