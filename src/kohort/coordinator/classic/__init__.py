"""Groups of the classic protocol: JoinGroup, SyncGroup, Heartbeat, LeaveGroup, their timers, and static members.

Floors: join and sync over rebalance and pending_decision, over sessions and validation, over state. `apply` folds
records. Begin with `state`, `join`, `rebalance`.
"""
