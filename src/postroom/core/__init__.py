"""Decides: pure functions and small state machines, without I/O, clock or randomness."""
