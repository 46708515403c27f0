"""The layers of any network swapped for others, and weights carried over."""
