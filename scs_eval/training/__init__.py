"""Training: recipes, the loop, per-epoch records, distributed launch."""
