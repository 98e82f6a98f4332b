"""The transaction coordinator's runtime and its writer of markers.

Begin with `runtime.py`, then `markers.py`; the decisions are `kohort.coordinator.transactions`.
"""
