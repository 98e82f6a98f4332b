"""Explanation of a group from its journal rows, for `kohort group why`."""
