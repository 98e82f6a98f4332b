"""The producer: its doors, and the application's half of it; `core` decides.

Floors: producer and aio_producer (the doors) over context, bulk_send and encoder, over core and buffer_pool. Begin with
`producer`, `encoder`, `core/producer_machine`.
"""
