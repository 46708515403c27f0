"""Attacks: the smallest change of an image that changes the answer, searched for inside an L∞ or L2 ball."""
