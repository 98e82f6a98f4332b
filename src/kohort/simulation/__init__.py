"""Seeded worlds that test kohort itself: simulated time, networks, disks, members, faults and the laws that hold..

Seeded worlds that test kohort itself: simulated time, networks, disks, members, faults and the laws that hold.
"""
