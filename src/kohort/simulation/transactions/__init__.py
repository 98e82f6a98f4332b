"""The transactions' world: producers in transactions, a transaction coordinator, and the logs of one broker."""
