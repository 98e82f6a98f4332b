"""Maintenance of closed segments while a broker serves: compaction, and checks for damage."""
