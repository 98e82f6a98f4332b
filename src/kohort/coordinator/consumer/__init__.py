"""Groups of the consumer protocol (KIP-848): heartbeats, target assignments, reconciliation, patterns, migration.

A heartbeat is decided by `heartbeat`; `assignment` has the target, `reconciliation` the way to it, `client_assignors`
the targets that members compute. `apply` folds records. Begin with `heartbeat`, `reconciliation/reconcile`, `apply`.
"""
