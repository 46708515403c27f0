"""Two notebooks are tested at once on a small machine: kernels with a thread each, or they wait for one another."""

import os

os.environ["OMP_NUM_THREADS"] = "1"
