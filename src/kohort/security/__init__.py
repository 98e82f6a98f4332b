"""Proof of identity and decisions about rights: SASL exchanges, certificates, secrets, the authorizer."""
