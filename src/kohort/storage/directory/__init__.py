"""The files at the top of a data directory: its marker, the catalog, Kafka's small files."""
