"""Builders of test data: bytes, logs, directories, groups and the blocks of documents."""
