"""Capability tokens: chains of HMACs, each link of which narrows the token.

`capability.py` mints, attenuates, reads and verifies tokens; `caveats.py` has the kinds of links and their limits;
`partition_sets.py` encodes partitions in few bytes; `root_keys.py` has the secrets that tokens are minted with. Nothing
here reads a clock or makes random numbers: times and random bytes are arguments.
"""
