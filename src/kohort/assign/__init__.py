"""Assignors: pure functions over arrays that choose an owner for each partition.

Layers, top first: assignors (by name); uniform and moves; ownership and subscribers; interface and the kernels. The
coordinator, and members that compute the assignment of their group, import this package. Begin with `interface`,
`uniform`, `ownership`.
"""
