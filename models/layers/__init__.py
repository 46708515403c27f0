"""The layers, one formula each."""

from scs_eval.models.layers.attention import SelfAttention
from scs_eval.models.layers.bcos import BcosConv2d, BcosLinear
from scs_eval.models.layers.encoding import AddInverse, FadingNormalize, LogitLayer, Normalize
from scs_eval.models.layers.gain import ChannelGain
from scs_eval.models.layers.norms import AllNorm, BatchNorm, GroupNorm, InstanceNorm, LayerNorm, PositionNorm
from scs_eval.models.layers.pooling import MaxAbsPool2d
from scs_eval.models.layers.scs import CosineSim2d, SCS2d, SharpenedSDP2d, constrain_

__all__ = [
    "AddInverse",
    "AllNorm",
    "BatchNorm",
    "BcosConv2d",
    "BcosLinear",
    "ChannelGain",
    "CosineSim2d",
    "FadingNormalize",
    "GroupNorm",
    "InstanceNorm",
    "LayerNorm",
    "LogitLayer",
    "MaxAbsPool2d",
    "Normalize",
    "PositionNorm",
    "SCS2d",
    "SelfAttention",
    "SharpenedSDP2d",
    "constrain_",
]
