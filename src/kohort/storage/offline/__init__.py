"""Directories that no broker works on: looked into, repaired, taken over from Apache Kafka."""
