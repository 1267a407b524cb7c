"""Putting Postroom into the configuration of other programs, and taking it out again (09.17)."""
