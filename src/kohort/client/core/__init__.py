"""Parts below the door of every client: the driver with its connections, and the machine's view of the cluster.

Floors: thread and in_loop (where a machine runs) over host, driver, connection, authenticator. Pure and apart from
those: coordinator_lookup, cluster, requests, actions, retry.
"""
