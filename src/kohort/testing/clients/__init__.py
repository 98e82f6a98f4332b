"""The seeded world of the clients: real consumers and producers, real brokers, virtual time and network."""
