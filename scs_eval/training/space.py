"""How much of the disk a run will need."""

from scs_eval.training.layer_state import find_layers
from scs_eval.training.trainer import Trainer

ROW_BYTES = 60  # a generous row of layers.csv or norms.csv
COPIES = 3  # of the weights in a checkpoint: themselves and Adam's two moments


def bytes_needed(trainer: Trainer, *, norms_per_batch: bool) -> int:
    """An upper estimate: two checkpoints (one is written before the other goes), the final weights and the tables."""
    weights = sum(value.numel() * value.element_size() for value in trainer.model.state_dict().values())
    copies = 2 * (COPIES + (trainer.average is not None)) + 1
    layers = find_layers(trainer.model)
    per_epoch = sum(3 + (layer.p.numel() if layer.p is not None else 0) for layer in layers)
    per_epoch += norms_per_batch * trainer.source.steps * len(layers)
    return copies * weights + (1 + trainer.recipe.epochs) * per_epoch * ROW_BYTES
