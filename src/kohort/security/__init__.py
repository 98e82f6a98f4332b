"""Who speaks, proven: SASL's exchanges, certificates, secrets."""
