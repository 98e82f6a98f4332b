"""The seeded world of Spark's streaming queries that share a group, on the clients' network."""
