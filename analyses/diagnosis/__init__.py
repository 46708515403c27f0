"""Whether robustness is real: the single checks behind the scorecard."""
