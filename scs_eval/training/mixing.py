"""MixUp and CutMix, by torchvision's transforms."""

from collections.abc import Callable

from torch import Tensor

from scs_eval.training.recipe import Recipe

Mixing = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]


def make_mixing(recipe: Recipe, *, num_classes: int) -> Mixing | None:
    """One of the mixings that the recipe switches on, chosen anew for each batch; None if there is none.

    It turns images and labels (N,) into mixed images and class shares (N, C), drawing from torch's global generator.
    """
    if not (recipe.mixup or recipe.cutmix):
        return None
    from torchvision.transforms import v2  # slow to import, and most recipes do without

    pairs = (v2.MixUp, recipe.mixup), (v2.CutMix, recipe.cutmix)
    return v2.RandomChoice([mixing(alpha=alpha, num_classes=num_classes) for mixing, alpha in pairs if alpha])
