"""The admin client for event loops; made by `python tools/aio_admin.py`."""
