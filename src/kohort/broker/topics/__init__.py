"""Topics: metadata, configs, partition leaders, ACLs, and the creation, change and deletion of topics."""
