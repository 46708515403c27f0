"""Our layers against their peers: training step, forward pass and explanation of the zoo's networks.

    python benchmarks/layers.py [OUT.csv]

Run it on an otherwise idle machine: timings that share their cores are worthless even as ratios.
"""

import sys
from functools import partial
from pathlib import Path

import torch
import torch.nn.functional as F
from contest import Contender, conditions, contest, rows, write
from rohrer_layer import published_rohrer
from torch import nn

from scs_eval.models.dynamic_linear import explanation_mode
from scs_eval.models.registry import create_model

BATCH, ROUNDS = 128, 15
Models = dict[str, nn.Module]


def step(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> None:
    """Forward, backward, and one update."""
    loss = F.cross_entropy(model(x), y)
    model.zero_grad()
    loss.backward()
    with torch.no_grad():
        for p in model.parameters():
            p.add_(p.grad, alpha=-1e-4)


@torch.no_grad()
def forward(model: nn.Module, x: torch.Tensor, _: torch.Tensor) -> None:
    model(x)


def explain(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> None:
    """The row of W(x) of one class for every image."""
    inputs = x.clone().requires_grad_()
    if hasattr(model, "explanation_mode"):  # the published package
        with model.explanation_mode():
            logits = model(inputs)
    else:
        with explanation_mode():
            logits = model(inputs)
    torch.autograd.grad(logits.gather(1, y[:, None]).sum(), inputs)


def sharpened(size: str, channels: tuple[int, int, int], features: int) -> Models:
    names = {"ours": f"{size}_scs", "ours MaxPool": f"{size}_scs_maxpool", "SharpenedSDP": f"{size}_ssdp"}
    models = {label: create_model(name) for label, name in names.items()}
    return {"published": published_rohrer(channels, features), **models, "conv": create_model(f"{size}_conv")}


def bcos_resnet20() -> Models:
    from bcos.models.resnet import cifar10_resnet20
    from bcos.modules import BcosConv2d, norms

    norm = norms.NoBias(norms.BatchNormUncentered2d)
    peer = cifar10_resnet20(norm_layer=norm, conv_layer=partial(BcosConv2d, b=2, max_out=2))
    return {"published": Encoded(peer), "ours": create_model("resnet20_bcos"), "conv": create_model("resnet20_conv")}


class Encoded(nn.Module):
    """The published network behind the encoding that ours has inside."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network
        self.explanation_mode = network.explanation_mode

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(N, 3, H, W) to logits (N, classes)."""
        return self.network(torch.cat([x, 1 - x], dim=1))


def measure(network: str, models: Models) -> list[dict[str, object]]:
    x = torch.rand(BATCH, 3, 32, 32)
    y = torch.arange(BATCH) % 10
    tasks = {"training step": step, "forward": forward, "explanation": explain}
    table = []
    for task, run in tasks.items():
        contenders: dict[str, Contender] = {}
        for label, model in models.items():
            explains_nothing = task == "explanation" and (
                label == "conv" or ("SCS" in network and label == "published")
            )
            if not explains_nothing:
                model = model.train(task == "training step")
                # Published as it is; everything else in the layout it is trained in.
                images = x if label == "published" else x.contiguous(memory_format=torch.channels_last)
                layout = torch.contiguous_format if label == "published" else torch.channels_last
                contenders[label] = partial(run, model.to(memory_format=layout), images, y)
        reference = "published" if "published" in contenders else "ours"
        table += rows(f"{network}: {task}", contest(contenders, rounds=ROUNDS), reference)
    return table


def main() -> None:
    torch.manual_seed(0)
    table = measure("Rohrer100K SCS", sharpened("rohrer100k", (32, 64, 128), 2048))
    table += measure("Rohrer583K SCS", sharpened("rohrer583k", (80, 160, 320), 5120))
    try:
        table += measure("ResNet-20 B-cos", bcos_resnet20())
    except ModuleNotFoundError:
        print("the package bcos is not installed: its rows are left out (pip install -e '.[dev]')")
    scs20 = {"ours": create_model("resnet20_scs_relu"), "conv": create_model("resnet20_conv")}
    table += measure("ResNet-20 SCS", scs20)
    for row in table:
        print(
            f"{row['task']:32} {row['contender']:14} {row['median_ms']:9} ms   {row['speedup']}× ({row['quartiles']})"
        )
    out = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).with_suffix(".csv"))
    write(out, table, conditions(ROUNDS))
    print(out)


if __name__ == "__main__":
    main()
