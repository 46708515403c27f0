"""What torch.compile makes of a sharpened layer, for the machines that the compiled passes do not serve."""


import pytest

MOST_KERNELS = 3  # besides the convolution

pytestmark = pytest.mark.slow  # compiles
