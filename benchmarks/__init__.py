"""Speed and memory against peers, as ratios between contenders that take turns in one run."""
