"""Two processes test at once on a small machine: one thread each."""

import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parent))  # tests import reference.py by its name
torch.set_num_threads(1)
