"""The families of the zoo: which networks there are and what their names mean by default. Imports no torch.

Defaults follow good practice for the layer: sharpened and cosine layers go without activation and pool by magnitude,
convolutions take ReLU and MaxPool, B-cos layers take no activation.
"""

from scs_eval.models.names import Family, Variant

ACTIVATIONS = ("relu", "linear")
POOLINGS = ("maxpool", "maxabspool")
SHARPENED = ("scs", "ssdp", "cos")
UNCENTRED = ("bnu", "lnu", "inu", "pnu", "anu", "gnu")  # batch, layer, instance, position, all, group norm
CENTRED = ("bn", "ln", "in", "pn", "an", "gn")

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
    choices={layer: {"activation": ACTIVATIONS, "pooling": POOLINGS} for layer in ("conv", *SHARPENED, "bcos")},
)

RESNET18 = Family(
    builder=f"{_ARCHITECTURES}.resnet18:build",
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
)

BCOS_CNN = Family(
    builder=f"{_ARCHITECTURES}.bcos_cnn:build",
    input_sizes={"bcos_cnn9": 32},
    defaults={"bcos": Variant("", "bcos", units="maxout", width=1.0, b=2.0)},
    choices={"bcos": {"units": ("maxout", "plain")}},
    listed={"width": (1.0, 0.25), "b": (1.0, 1.25, 1.5, 1.75, 2.0, 2.25, 2.5)},
)

FAMILIES = (ROHRER, RESNET18, CIFAR_RESNET, BCOS_CNN)
