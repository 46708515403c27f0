"""The smallest ε that foolbox's FMN finds with 300 steps: the peer that the suite `strength` is measured by.

It takes three quarters of the suite's time and does not depend on our attacks. So `fmn.csv` keeps what it found, image
by image, and holds for as long as the weights are the same; `python -m scs_eval.benchmarks.fmn` makes it anew.
In L2 foolbox 3.3 does not project (its factor is norms / norms): we do it for it, or it would hardly find anything.
"""

from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

from scs_eval.analyses.attacks.ball import distance
from scs_eval.analyses.core.model_state import evaluating
from scs_eval.data import load_data
from scs_eval.models.loading.load import load_model, weights_index

MODELS = (
    "rohrer100k_conv", "rohrer100k_scs", "rohrer100k_ssdp", "resnet20_conv", "resnet20_bcos", "bcos_cnn9_w=0.25_b=2.5",
)  # fmt: skip
NORMS = ("linf", "l2")
IMAGES = 200
EARLIER = 400  # images of the sample from which earlier tables, and choices made after seeing them, took theirs
STEPS, AT_ONCE = 300, 50
FILE = Path(__file__).with_name("fmn.csv")


def right_images(name: str) -> tuple[nn.Module, Tensor, Tensor, np.ndarray]:
    """The model, the first IMAGES that it has right of those that no constant was chosen on, labels, test indices."""
    model, data = load_model(name).eval(), load_data("sample")
    unseen = torch.from_numpy(~np.isin(data.indices, load_data("sample", n=EARLIER).indices))
    images, labels, indices = data.images[unseen], data.labels[unseen], data.indices[unseen]
    with torch.no_grad():
        right = torch.cat([model(part) for part in images.split(AT_ONCE)]).argmax(1) == labels
    return model, images[right][:IMAGES], labels[right][:IMAGES], indices[right][:IMAGES].numpy()


def fmn_eps(model: nn.Module, images: Tensor, labels: Tensor, norm: str) -> np.ndarray:
    """(n,) how near the misclassified point is that FMN finds, inf where it finds none."""
    foolbox: Any = import_module("foolbox")
    kind = foolbox.attacks.LInfFMNAttack if norm == "linf" else _projected_l2(foolbox)
    with evaluating(model):
        known = foolbox.PyTorchModel(model, bounds=(0, 1))
        parts = zip(images.split(AT_ONCE), labels.split(AT_ONCE), strict=True)
        points = torch.cat([kind(steps=STEPS).run(known, x, foolbox.criteria.Misclassification(y)) for x, y in parts])
        wrong = predictions(model, points) != labels
    return torch.where(wrong, distance(images, points, norm), torch.inf).numpy()


def predictions(model: nn.Module, images: Tensor) -> Tensor:
    """(n,) the model's classes."""
    with torch.no_grad():
        return torch.cat([model(part) for part in images.split(AT_ONCE)]).argmax(1)


def kept_eps(name: str, norm: str, indices: np.ndarray) -> np.ndarray | None:
    """(n,) what the file has for these weights and images, if it has all of them."""
    table = pd.read_csv(FILE) if FILE.exists() else pd.DataFrame(columns=["weights", "norm", "index", "eps"])
    table = table[(table["weights"] == weights_of(name)) & (table["norm"] == norm)].set_index("index")["eps"]
    return table.loc[indices].to_numpy() if np.isin(indices, table.index).all() else None


def weights_of(name: str) -> str:
    """The first digits of the SHA-256 of the weights."""
    return str(weights_index()[name]["sha256"])[:12]


def _projected_l2(foolbox: Any) -> Any:
    astensor: Any = import_module("eagerpy").astensor

    class ProjectedL2(foolbox.attacks.L2FMNAttack):
        def project(self, x: Any, x0: Any, epsilon: Any) -> Any:
            change = x.raw - x0.raw
            shrink = (epsilon.raw / change.flatten(1).norm(dim=1).clamp(min=1e-12)).clamp(max=1)
            return astensor(x0.raw + change * shrink.view(-1, 1, 1, 1))

    return ProjectedL2


def main() -> None:
    """Write what is missing in the file, network by network."""
    for name in MODELS:
        model, images, labels, indices = right_images(name)
        for norm in NORMS:
            if kept_eps(name, norm, indices) is None:
                eps = fmn_eps(model, images, labels, norm)
                row = pd.DataFrame(
                    {"network": name, "weights": weights_of(name), "norm": norm, "eps": eps, "index": indices}
                )
                row.to_csv(FILE, mode="a", header=not FILE.exists(), index=False, float_format="%.6g")


if __name__ == "__main__":
    main()
