"""Seeded worlds that test kohort itself: simulated time, networks, members and faults, and the laws that hold.

`World` has the coordinator with simulated members, `clients` real clients and brokers, `queries` Spark's queries.
No other room imports this one; `kohort.testing` gives its public names on. Begin with `world`, `checkers`, `clients`.
"""
