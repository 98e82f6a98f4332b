"""Kafka's protocol: message declarations, codecs compiled from them, the registry of APIs, kohort's own numbers.

Layers, the highest first: registry; messages; codec (encoder, decoder); schema and primitives. No I/O. All code that
uses the protocol imports this package. Read `schema`, `messages/heartbeat` and `registry` first.
"""
