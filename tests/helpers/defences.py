"""A gallery for the scorecard: defences that break gradients rather than attacks, and networks that hide nothing.

Each defence stands before or behind a trained network of the zoo; labels are the network's own answers, so every image
counts. `python tests/helpers/defences.py` judges all of them and writes docs/gallery.csv.
"""

import io
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import torch
import torch.nn.functional as F
from PIL import Image
from small_networks import Lambda
from torch import Tensor, nn

from scs_eval import PgdOptions, load_data, load_model, pgd
from scs_eval.models.layers import SharpenedSDP2d

TABLE = Path(__file__).parents[2] / "docs" / "gallery.csv"
IMAGES, GRID = 64, np.linspace(0.002, 0.03, 15).tolist()
CHANGED = 0.05  # of robust accuracy, mean over the grid: above that of the network behind the defence


class Flip(torch.autograd.Function):
    @staticmethod
    def forward(ctx: object, values: Tensor) -> Tensor:
        return values.clone()

    @staticmethod
    def backward(ctx: object, grad: Tensor) -> Tensor:
        return -grad


def quantised(images: Tensor, levels: int = 16) -> Tensor:
    return (images * levels).round() / levels


def thermometer(images: Tensor, levels: int = 16) -> Tensor:
    steps = (torch.arange(levels) + 0.5) / levels
    return (images[..., None] > steps).float().mean(-1)


def jpeg(images: Tensor) -> Tensor:
    return torch.stack([_jpeg(image) for image in images.detach()])


def _jpeg(image: Tensor) -> Tensor:
    file = io.BytesIO()
    Image.fromarray((image * 255).round().byte().permute(1, 2, 0).numpy()).save(file, "JPEG", quality=75)
    return torch.from_numpy(np.array(Image.open(file))).permute(2, 0, 1).float() / 255


def median(images: Tensor) -> Tensor:
    n, channels, height, width = images.shape
    patches = F.unfold(F.pad(images, (1, 1, 1, 1), mode="reflect"), 3).view(n, channels, 9, height, width)
    return patches.median(2).values


def noisy(images: Tensor) -> Tensor:
    return images + 0.05 * torch.randn_like(images)


def noise_of_the_image(images: Tensor) -> Tensor:
    """The same noise for the same image; a change in the last bit makes another."""
    seeds = (images.detach().double().sum((1, 2, 3)) * 1e9).long() % 2**31
    draws = [torch.randn(images.shape[1:], generator=torch.Generator().manual_seed(int(seed))) for seed in seeds]
    return images + 0.05 * torch.stack(draws)


def ripple(images: Tensor) -> Tensor:
    """A wave of 1/500, 20 times as steep as the image itself and as good as invisible."""
    return images + 0.0064 * torch.sin(2 * torch.pi * 500 * images)


def winners_take_all() -> nn.Module:
    """A tenth of the first layer's outputs, the largest."""
    network = load_model("rohrer100k_conv").eval()
    first = next(module for module in network.modules() if isinstance(module, nn.Conv2d))

    def keep(_module: nn.Module, _inputs: object, output: Tensor) -> Tensor:
        flat = output.flatten(1)
        least = flat.topk(flat.shape[1] // 10, dim=1).values[:, -1:]
        return (flat * (flat >= least)).view_as(output)

    first.register_forward_hook(keep)
    return network


def sharpened(p: float = 20.0) -> nn.Module:
    network = load_model("rohrer100k_scs").eval()
    for module in network.modules():
        if isinstance(module, SharpenedSDP2d):
            module.p.data.fill_(p)
    return network


def linear() -> nn.Module:
    layer = nn.Linear(3072, 10)
    with torch.no_grad():
        layer.weight.copy_(torch.randn(10, 3072, generator=torch.Generator().manual_seed(1)) / 50)
        layer.bias.copy_(-0.5 * layer.weight.sum(1))
    return nn.Sequential(nn.Flatten(), layer)


def before(function: Callable[[Tensor], Tensor]) -> Callable[[], nn.Module]:
    return lambda: nn.Sequential(Lambda(function), load_model("rohrer100k_conv"))


def behind(function: Callable[[Tensor], Tensor]) -> Callable[[], nn.Module]:
    return lambda: nn.Sequential(load_model("rohrer100k_conv"), Lambda(function))


class Exhibit(NamedTuple):
    """build: the network. base: the one of the zoo whose labels and curve it is compared with; None if it is sound."""

    build: Callable[[], nn.Module]
    base: str | None = "rohrer100k_conv"


BROKEN = {
    "quantised input": Exhibit(before(quantised)),
    "thermometer code": Exhibit(before(thermometer)),
    "JPEG": Exhibit(before(jpeg)),
    "median filter": Exhibit(before(median)),
    "noise": Exhibit(before(noisy)),
    "image-seeded noise": Exhibit(before(noise_of_the_image)),
    "dropout": Exhibit(before(lambda images: F.dropout(images, 0.1))),
    "ripple": Exhibit(before(ripple)),
    "flipped gradient": Exhibit(before(Flip.apply)),
    "k winners take all": Exhibit(winners_take_all),
    "saturated logits": Exhibit(behind(lambda logits: 1000 * logits.tanh())),
    "distillation (logits × 100)": Exhibit(behind(lambda logits: 100 * logits)),
    "softmax outputs": Exhibit(behind(lambda logits: (20 * logits).softmax(1))),
    "sigmoid outputs": Exhibit(behind(lambda logits: (20 * logits).sigmoid())),
    "SCS with p = 20": Exhibit(sharpened, "rohrer100k_scs"),
}
SOUND = {
    "linear": Exhibit(linear, None),
    "adversarially trained": Exhibit(lambda: load_model("rohrer100k_conv_hardened"), None),
    **{name: Exhibit(lambda name=name: load_model(name), None) for name in
       ("rohrer100k_conv", "rohrer100k_scs", "rohrer100k_ssdp", "rohrer100k_bcos")},
}  # fmt: skip


CURVE = PgdOptions(scorecard=None)


def judge(name: str) -> dict[str, object]:
    """A row of the table: the verdict, the checks behind it, and whether the curve is higher than it should be."""
    exhibit = {**BROKEN, **SOUND}[name]
    images = load_data("sample", n=IMAGES).images[:]
    network = exhibit.build().eval()
    base = network if exhibit.base is None else load_model(exhibit.base).eval()
    torch.manual_seed(0)
    with torch.no_grad():
        deterministic = torch.equal(network(images), network(images))
        labels = (network if deterministic else base)(images).argmax(1)
    result = pgd(network, images, labels, eps=GRID)
    card = result.scorecard
    assert card is not None
    with torch.no_grad():
        own = base(images).argmax(1)
    honest = 0.0 if exhibit.base is None else 1 - pgd(base, images, own, eps=GRID, options=CURVE).is_adversarial.mean()
    rise = float(1 - result.is_adversarial.mean() - honest) if exhibit.base else 0.0
    failed = [check.name for check in card.lines if check.verdict == card.verdict] if card.verdict != "PASS" else []
    kind = "sound" if exhibit.base is None else "broken, curve higher" if rise > CHANGED else "broken, curve as it was"
    return {
        "network": name,
        "kind": kind,
        "verdict": card.verdict,
        "by": "; ".join(failed),
        "rise": round(100 * rise, 1),
    }


def main() -> None:
    """Judge all of them and write the table."""
    rows = []
    for name in (*BROKEN, *SOUND):
        rows.append(judge(name))
        print(rows[-1], flush=True)
    pd.DataFrame(rows).to_csv(TABLE, index=False)


if __name__ == "__main__":
    main()
