"""The files of one log: batches and indexes, written, read, and searched where they are damaged."""
