"""Journal entries about decisions: `reporter` reads each decision and describes its records."""
