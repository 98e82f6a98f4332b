"""Kafka's protocol: messages declared once, codecs compiled from them, the registry of APIs, our own numbers.

Floors: registry over messages, over codec (encoder, decoder), over schema and primitives. It does no I/O. Everything
that speaks the protocol imports this room. Begin with `schema`, `messages/heartbeat`, `registry`.
"""
