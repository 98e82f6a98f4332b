"""Groups of the consumer protocol (KIP-848): heartbeats, target assignments, reconciliation, patterns, migration.

`heartbeat` decides heartbeats; `assignment` computes the target, `reconciliation` leads members to it, and with
`client_assignors` members compute it. `apply` applies records. Begin with `heartbeat`, `reconciliation/reconcile`.
"""
