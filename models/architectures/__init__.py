"""One file per family of networks."""
