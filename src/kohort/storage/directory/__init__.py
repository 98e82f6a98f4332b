"""What lies at the top of a data directory: its marker, the catalogue, Kafka's small files."""
