"""The seeded world of real consumers, producers and brokers on virtual time and network."""
