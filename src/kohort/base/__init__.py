"""Foundations that every room may import: error codes, options as data, deadlines, the clock, value classes, JSON..

Foundations that every room may import: error codes, options as data, deadlines, the clock, value classes, JSON.
"""
