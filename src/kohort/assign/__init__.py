"""Assignors: the choice of an owner for each partition, as pure functions over arrays.

Floors: assignors (their names) over uniform and moves, over ownership and subscribers, over interface and the kernels.
The coordinator, and members that compute for their group, import this room. Begin with `interface`, `uniform`,
`ownership`.
"""
