"""Which networks there are: names, families, the registry, parameter counts, counterparts."""
