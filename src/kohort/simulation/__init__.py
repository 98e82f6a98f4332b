"""Seeded worlds that test kohort itself: simulated time, networks, members and faults, and the laws that hold.

`World` tests the coordinator with simulated members, `clients` real clients and brokers, `queries` Spark's queries.
No other package imports this one; `kohort.testing` re-exports its public names. Begin with `world`, `checkers`.
"""
