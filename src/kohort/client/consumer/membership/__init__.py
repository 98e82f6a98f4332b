"""A member of a group.

consumer_member (KIP-848) and classic_member over member, the part that both protocols share; states,
publishing and computing below them.
"""
