"""The consumer: its door and the application's side of it, and the rooms of its machine.

Floors: consumer and aio_consumer (the doors) over door, which holds the calls of positions, reader and subscriptions.
These share the context, with its rebalancing and deliveries. core has the machine, made of fetch, membership and
offsets. application_events are the messages between the two sides.
"""
