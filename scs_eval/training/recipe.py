"""How a model is trained: named sets of numbers, every one of which the command line can override. No torch here."""

from dataclasses import asdict, dataclass, fields, replace
from typing import Annotated, Any, Literal

from scs_eval.errors import InputError

SIZES = "image_size", "eval_resize", "eval_size"
POSITIVE = "epochs", "batch_size", "lr", "kernel_lr", "exponent_lr", "ema_every", "repeats", "pgd_steps", *SIZES


@dataclass(frozen=True)
class Recipe:
    """The numbers of one way of training; the defaults are the SCS paper's CIFAR-10 recipe (its Appendix A).

    The text of each annotation is the help of the command line's option of that name.
    """

    epochs: Annotated[int, "Passes over the training images."] = 800
    batch_size: Annotated[int, "Images per step, over all processes together."] = 128
    optimizer: Annotated[
        Literal["adam", "adamw", "sgd", "muon"], "Optimiser; muon is for convolution kernels, with Adam for the rest."
    ] = "adam"
    lr: Annotated[float, "Largest learning rate."] = 0.01
    kernel_lr: Annotated[float, "muon: largest learning rate of the convolution kernels."] = 0.02
    exponent_lr: Annotated[float, "Learning rate of p, q and a learned B, as a multiple of lr."] = 1.0
    momentum: Annotated[float, "sgd, muon: Nesterov momentum."] = 0.9
    weight_decay: Annotated[float, "Weight decay; with muon, of the kernels alone."] = 0.0
    schedule: Annotated[Literal["onecycle", "cosine", "constant"], "Learning rate over the steps."] = "onecycle"
    warmup_epochs: Annotated[float, "cosine: epochs of linear warm-up, from lr/100."] = 0.0
    final_lr: Annotated[float, "cosine: learning rate at the end."] = 0.0
    loss: Annotated[Literal["ce", "bce"], "Cross-entropy, or binary cross-entropy on one-hot targets."] = "ce"
    label_smoothing: Annotated[float, "Share of the target that is spread over all classes."] = 0.0
    soft_negatives: Annotated[bool, "bce: train the wrong classes towards 1/C instead of 0."] = False
    agc: Annotated[float, "Adaptive gradient clipping at this share of the weight norm; 0 is off."] = 0.0
    ema_decay: Annotated[float, "Decay of a kept moving average of the weights, per image and epoch; 0 is off."] = 0.0
    ema_every: Annotated[int, "Steps between two updates of the moving average."] = 32
    flip: Annotated[bool, "Mirror every second image, at random."] = True
    alternating_flip: Annotated[bool, "In-memory data: mirror an image in every second epoch, not at random."] = False
    crop_padding: Annotated[int, "In-memory data: zero padding before the random crop."] = 4
    mixup: Annotated[float, "MixUp's alpha; 0 is off."] = 0.0
    cutmix: Annotated[float, "CutMix's alpha; 0 is off."] = 0.0
    pgd_eps: Annotated[float, "Train on images attacked by PGD within this ε, such as 0.0157 (4/255); 0 is off."] = 0.0
    pgd_steps: Annotated[int, "Steps of that attack; each costs as much as training on the batch."] = 3
    ramp_epochs: Annotated[float, "Converted networks: epochs over which B or p rises and biases go; 0 is off."] = 0.0
    ramp_b: Annotated[float, "B of B-cos layers at the end of the ramp, but for what those that learn it learn."] = 2.0
    ramp_p: Annotated[float, "p of SCS layers there, but for what they learn besides."] = 2.0
    image_size: Annotated[int, "Folders: side of the random resized crop."] = 224
    eval_resize: Annotated[int, "Folders: shorter side before the central crop, for evaluation."] = 256
    eval_size: Annotated[int, "Folders: side of that central crop."] = 224
    augment: Annotated[Literal["none", "trivial", "rand"], "Folders: TrivialAugmentWide or RandAugment."] = "none"
    erasing: Annotated[float, "Folders: probability of RandomErasing."] = 0.0
    repeats: Annotated[int, "Folders: copies of an image in an epoch, each augmented anew."] = 1

    def __post_init__(self) -> None:
        """Refuse numbers with which nothing could be trained."""
        for name in POSITIVE:
            _expect(getattr(self, name) > 0, name, "more than 0", getattr(self, name))
        for name in ("ramp_b", "ramp_p"):
            _expect(getattr(self, name) >= 1, name, "at least 1", getattr(self, name))
        for name in (
            "weight_decay",
            "ramp_epochs",
            "warmup_epochs",
            "final_lr",
            "agc",
            "crop_padding",
            "mixup",
            "cutmix",
        ):
            _expect(getattr(self, name) >= 0, name, "0 or more", getattr(self, name))
        for name in ("ema_decay", "erasing", "label_smoothing", "momentum", "pgd_eps"):
            _expect(0 <= getattr(self, name) < 1, name, "at least 0 and less than 1", getattr(self, name))
        _expect(self.warmup_epochs < self.epochs, "warmup_epochs", "less than epochs", self.warmup_epochs)
        _expect(self.ramp_epochs <= self.epochs, "ramp_epochs", "at most epochs", self.ramp_epochs)
        self._refuse_idle()

    def _refuse_idle(self) -> None:
        """An option that does nothing would leave its user believing that it did."""
        if self.schedule != "cosine" and (self.warmup_epochs or self.final_lr):
            raise InputError(f"warmup_epochs and final_lr belong to schedule=cosine, not to {self.schedule}")
        if self.optimizer != "muon" and self.kernel_lr != Recipe.kernel_lr:
            raise InputError(f"kernel_lr belongs to optimizer=muon; {self.optimizer} has one lr")
        if self.optimizer.startswith("adam") and self.momentum != Recipe.momentum:
            raise InputError(f"momentum belongs to optimizer=sgd or muon, not to {self.optimizer}")
        if not self.pgd_eps and self.pgd_steps != Recipe.pgd_steps:
            raise InputError("pgd_steps needs pgd_eps")
        if not self.ramp_epochs and (self.ramp_b, self.ramp_p) != (Recipe.ramp_b, Recipe.ramp_p):
            raise InputError("ramp_b and ramp_p need ramp_epochs")
        if self.ramp_epochs and self.ema_decay:
            raise InputError("ema_decay would average networks of different B; leave it or ramp_epochs out")
        if self.alternating_flip and not self.flip:
            raise InputError("alternating_flip needs flip")
        if self.loss == "ce" and self.soft_negatives:
            raise InputError("soft_negatives belongs to loss=bce; cross-entropy has no wrong classes to train")


def _expect(holds: bool, name: str, wanted: str, got: float) -> None:
    if not holds:
        raise InputError(f"{name}: expected {wanted}, got {got:g}")


_SCS = Recipe()
# The paper takes its plain 9-layer networks down to 1e-5 and its ResNets to 0; `--final-lr 1e-5` does the former.
_BCOS_CIFAR = Recipe(epochs=100, batch_size=64, lr=1e-3, schedule="cosine", loss="bce")
_BCOS_IMAGENET = replace(_BCOS_CIFAR, epochs=90, batch_size=256, warmup_epochs=5, soft_negatives=True, agc=0.01)
_BCOS_LONG = replace(
    _BCOS_IMAGENET,
    epochs=600,
    batch_size=1024,
    ema_decay=0.99998,
    mixup=0.2,
    cutmix=1.0,
    image_size=176,
    eval_resize=232,
    augment="trivial",
    erasing=0.1,
    repeats=4,
)
# Beyer et al., "Better plain ViT baselines": 10,000 steps of warm-up are eight epochs of ImageNet at batch 1024.
_BCOS_VIT = replace(_BCOS_IMAGENET, batch_size=1024, warmup_epochs=8, mixup=0.2, augment="rand")
# Chosen on 5,000 held-out training images, the same for every layer (docs/recipe_ablation.csv).
_FAST = Recipe(
    epochs=16,
    optimizer="muon",
    lr=0.02,
    kernel_lr=0.015,
    momentum=0.95,
    weight_decay=0.1,  # without it kernels grow fourfold, and SharpenedSDP, whose output is a power of them, explodes
    label_smoothing=0.1,
    alternating_flip=True,
)
# A fifth of the fast recipe's epochs. B-cosification takes the loss of B-cos networks (Arya et al. 2024).
_SCSIFY = replace(_FAST, epochs=3, ramp_epochs=1.5)
_BCOSIFY = replace(_SCSIFY, loss="bce", label_smoothing=0.0)

RECIPES = {
    "fast": _FAST,
    "bcosify": _BCOSIFY,
    "scsify": _SCSIFY,
    "scs": _SCS,
    "scs-resnet": replace(_SCS, epochs=200),
    "bcos-cifar": _BCOS_CIFAR,
    "bcos-imagenet": _BCOS_IMAGENET,
    "bcos-imagenet-long": _BCOS_LONG,
    "bcos-vit": _BCOS_VIT,
}


def default_recipe(model_name: str) -> str:
    """The recipe of the paper that the layer of this model comes from."""
    if "bcos" in model_name:
        return "bcos-cifar"
    return "scs-resnet" if model_name.startswith(("resnet18", "resnet20")) else "scs"


def implied_numbers(model_name: str) -> dict[str, Any]:
    """What the name of a network says of its training: a hardened one learns from images attacked within 4/255."""
    return {"pgd_eps": 0.0157} if "hardened" in model_name.split("_") else {}


def make_recipe(name: str, overrides: dict[str, Any]) -> Recipe:
    """The named recipe with some of its numbers changed."""
    if name not in RECIPES:
        raise InputError(f"no recipe {name!r}; there are {', '.join(RECIPES)}")
    unknown = set(overrides) - {field.name for field in fields(Recipe)}
    if unknown:
        raise InputError(f"a recipe has no {', '.join(sorted(unknown))}; it has {', '.join(asdict(RECIPES[name]))}")
    return replace(RECIPES[name], **overrides)
