"""How a typed program uses the package: checked by mypy in strict mode against the annotations that are shipped."""

from pathlib import Path

import numpy as np
import torch
from torch import nn

import scs_eval

model: nn.Module = scs_eval.load_model("rohrer100k_scs")
data: scs_eval.ImageData = scs_eval.load_data("sample", n=8)
result = scs_eval.contributions(model, data.images, data.labels, classes=data.classes)
maps: np.ndarray = result.maps
curve = scs_eval.pgd(model, data.images, data.labels, classes=data.classes, eps=[1 / 255, 2 / 255])
attacked: list[float] = curve.accuracy.estimate.tolist()
heat: torch.Tensor = scs_eval.attribute(model, data.images[:], data.labels, method="grad")
folder: Path = scs_eval.write_result(result, "out")
names: list[str] = scs_eval.list_models()
