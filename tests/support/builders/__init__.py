"""What a test needs to have: bytes, logs, directories, groups and the blocks of documents."""
