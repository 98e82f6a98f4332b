"""Tools for data directories that no broker works on: `inspection` and, over it, `repair` and `kafka_import`."""
