"""The families of the zoo: which networks there are and what their names mean by default. Imports no torch.

Defaults follow good practice for the layer: sharpened and cosine layers go without activation and pool by magnitude,
convolutions take ReLU and MaxPool, B-cos layers take no activation.
"""

from dataclasses import replace

from scs_eval.models.zoo.names import Family, Variant

ACTIVATIONS = ("relu", "linear")
POOLINGS = ("maxpool", "maxabspool")
SHARPENED = ("scs", "ssdp", "cos")
UNCENTRED = ("bnu", "lnu", "inu", "pnu", "anu", "gnu")  # batch, layer, instance, position, all, group norm
CENTRED = ("bn", "ln", "in", "pn", "an", "gn")
BIASED = tuple(f"{norm}bias" for norm in (*UNCENTRED, *CENTRED))  # of the ablation (B-cos v2, Fig. 13)

_ARCHITECTURES = "scs_eval.models.architectures"


def _conv(**options: str) -> Variant:
    return Variant("", "conv", activation="relu", **options)  # type: ignore[arg-type]


def _sharpened(layer: str, **options: str) -> Variant:
    return Variant("", layer, activation="linear", **options)  # type: ignore[arg-type]


ROHRER = Family(
    builder=f"{_ARCHITECTURES}.rohrer:build",
    input_sizes={f"rohrer{size}": 32 for size in ("25k", "47k", "68k", "100k", "583k")},
    defaults={
        "conv": _conv(pooling="maxpool"),
        **{layer: _sharpened(layer, pooling="maxabspool") for layer in SHARPENED},
        "bcos": Variant("", "bcos", activation="linear", pooling="maxpool", b=2.0),
    },
    choices={
        layer: {"activation": ACTIVATIONS, "pooling": POOLINGS, "training": ("hardened",)}
        for layer in ("conv", *SHARPENED, "bcos")
    },
    hardened=("rohrer100k_conv", "rohrer100k_scs"),
)

RESNET18 = Family(
    builder=f"{_ARCHITECTURES}.resnet:build",
    input_sizes={"resnet18": 32, "resnet18_224": 224},
    defaults={
        "conv": _conv(pooling="maxpool", norm="bn"),
        **{layer: _sharpened(layer, pooling="maxabspool", norm="bn") for layer in SHARPENED},
        # The published B-cos ResNets pool their stem by averaging and normalise without centring.
        "bcos": Variant("", "bcos", activation="linear", pooling="avgpool", norm="bnu", b=2.0),
    },
    choices={
        **{
            layer: {"activation": ACTIVATIONS, "pooling": POOLINGS, "norm": ("bn", "nobn")}
            for layer in ("conv", *SHARPENED)
        },
        "bcos": {"activation": ACTIVATIONS, "pooling": (*POOLINGS, "avgpool"), "norm": ("bnu", "nobn")},
    },
)

CIFAR_RESNET = Family(
    builder=f"{_ARCHITECTURES}.cifar_resnet:build",
    input_sizes={f"resnet{depth}": 32 for depth in (20, 32, 44, 56)},
    defaults={
        "conv": _conv(norm="bn"),
        "scs": _sharpened("scs", norm="bn"),
        "bcos": Variant("", "bcos", norm="bnu", units="maxout", b=2.0),
    },
    choices={
        "conv": {"activation": ACTIVATIONS, "norm": ("bn", "nobn")},
        "scs": {"activation": ACTIVATIONS, "norm": ("bn", "nobn")},
        "bcos": {"norm": (*UNCENTRED, *CENTRED), "units": ("maxout", "plain")},
    },
    unlisted={"bcos": {"norm": (*BIASED, "nobn")}},
)

BCOS_CNN = Family(
    builder=f"{_ARCHITECTURES}.bcos_cnn:build",
    input_sizes={"bcos_cnn9": 32},
    defaults={"bcos": Variant("", "bcos", units="maxout", width=1.0, b=2.0)},
    choices={"bcos": {"units": ("maxout", "plain")}},
    listed={"width": (1.0, 0.25), "b": (1.0, 1.25, 1.5, 1.75, 2.0, 2.25, 2.5)},
)

_CONV, _BCOS = Variant("", "conv"), Variant("", "bcos", b=2.0)


def _imagenet(
    module: str, *architectures: str, conv: Variant = _CONV, bcos: Variant = _BCOS, **choices: tuple[str, ...]
) -> Family:
    """Networks of the B-cos paper's ImageNet study: the B-cos form with its options, and its conventional twin."""
    return Family(
        builder=f"{_ARCHITECTURES}.{module}:build",
        input_sizes=dict.fromkeys(architectures, 224),
        defaults={"conv": conv, "bcos": bcos},
        choices={"conv": {}, "bcos": choices},
        num_classes=1000,
    )


_RESNETS = ("resnet34", "resnet50", "resnet101", "resnet152", "resnext50_32x4d")
_DENSENETS = ("densenet121", "densenet161", "densenet169", "densenet201")
_VITS = tuple(f"{stem}_{size}" for stem in ("vit", "vitc") for size in ("ti", "s", "b", "l"))

IMAGENET = (
    _imagenet("resnet", *_RESNETS, conv=RESNET18.defaults["conv"], bcos=RESNET18.defaults["bcos"]),
    _imagenet("vgg", "vgg11"),
    _imagenet("densenet", *_DENSENETS),
    _imagenet("convnext", "convnext_tiny", "convnext_base", bcos=replace(_BCOS, norm="pn"), norm=("pn", "bnu")),
    # The twin of a ViT is called conv like every other network's: its patches and MLPs are convolutions (3.3.3).
    _imagenet("vit", *_VITS),
)

FAMILIES = (ROHRER, RESNET18, CIFAR_RESNET, BCOS_CNN, *IMAGENET)
