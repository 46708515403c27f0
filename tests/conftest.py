"""Two processes test at once on a small machine: one thread each."""

import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parent / "helpers"))  # tests import these by their names
torch.set_num_threads(1)
