"""W(x): explanation mode, the decomposition of a logit, activations inside a network."""
