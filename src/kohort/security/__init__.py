"""Proof of identity: SASL exchanges, certificates, secrets."""
