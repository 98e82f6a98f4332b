"""Groups of the classic protocol: JoinGroup, SyncGroup, Heartbeat, LeaveGroup, their timers, and static members.

Layers, top first: join and sync; rebalance and pending_decision; sessions and validation; state. `apply` applies
records. Begin with `state`, `join`, `rebalance`.
"""
