"""Authentication and authorization: SASL exchanges, certificates, tokens, stored passwords, ACLs."""
