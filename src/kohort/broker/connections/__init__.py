"""Client connections: requests and their responses in order, TLS, idle timeouts, held heartbeats."""
