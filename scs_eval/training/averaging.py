"""The moving average of the weights that long recipes keep instead of the last weights."""

from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from scs_eval.training.recipe import Recipe


class WeightAverage:
    """An average that begins anew as long as the learning rate warms up, so that no early weights stay in it."""

    def __init__(self, model: nn.Module, recipe: Recipe) -> None:
        self.recipe = recipe
        self.averaged = AveragedModel(
            model, multi_avg_fn=get_ema_multi_avg_fn(decay_per_update(recipe)), use_buffers=True
        )

    def update(self, model: nn.Module, *, epoch: int, step: int) -> None:
        """Take in the weights after a step, if it is one of those that count."""
        if step % self.recipe.ema_every:
            return
        self.averaged.update_parameters(model)
        if epoch - 1 < self.recipe.warmup_epochs:
            self.averaged.n_averaged.zero_()  # the next update then takes the weights as they are

    @property
    def begun(self) -> bool:
        """Whether there is an average yet."""
        return self.averaged.n_averaged.item() > 0

    @property
    def module(self) -> nn.Module:
        """The model with averaged weights."""
        return self.averaged.module


def decay_per_update(recipe: Recipe) -> float:
    """How much of the old average an update keeps.

    A published decay belongs to one image and one epoch, as in torchvision's recipes, which B-cos v2 follows:
    0.99998 at batch 1024, an update every 32 steps and 600 epochs is 0.9989 for each update. Taken as it stands it
    would leave most of the first weights in the average after 600 epochs.
    """
    share = (1 - recipe.ema_decay) * recipe.batch_size * recipe.ema_every / recipe.epochs
    return 1 - min(1.0, share)
