"""Quantus and we: its metrics by name in `faithfulness`, and our methods as its `explain_func`."""

import inspect
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from scs_eval.analyses.attribution.attribute import attribute
from scs_eval.analyses.attribution.metric_records import HIGHER, LOWER, NEITHER, QUANTUS, Metric
from scs_eval.analyses.attribution.own_methods import MethodLike
from scs_eval.analyses.core.model_state import device_of
from scs_eval.analyses.core.seeding import seeded
from scs_eval.analyses.core.validation import count_logits
from scs_eval.errors import InputError, did_you_mean

# One number for each image, and no talk.
MANNERS = {
    "disable_warnings": True, "display_progressbar": False, "return_aggregate": False, "return_auc_per_sample": True,
    "return_average_correlation": True,
}  # fmt: skip


def explain_func(method: MethodLike) -> Callable[..., np.ndarray]:
    """Our method as Quantus's `explain_func`: from (model, inputs, targets) to maps (n, 1, H, W), channels summed.

    >>> import scs_eval
    >>> explain = scs_eval.explain_func("ixg")
    >>> model, data = scs_eval.load_model("rohrer25k_scs"), scs_eval.load_data("sample", n=2)
    >>> explain(model=model, inputs=data.images.numpy(), targets=data.labels.numpy()).shape
    (2, 1, 32, 32)
    """

    def explain(model: nn.Module, inputs: np.ndarray, targets: np.ndarray, **options: Any) -> np.ndarray:
        images, classes = torch.as_tensor(inputs).float(), torch.as_tensor(targets).long()
        maps = attribute(model, images.clamp(0, 1), classes, method=method, seed=options.get("seed", 0))
        return maps.sum(1, keepdim=True).cpu().numpy()

    return explain


def metric_named(name: str) -> Metric:
    """The metric that is the class of Quantus with that name, with its own defaults."""
    kind = _class(name)
    if kind.evaluation_category.name == "LOCALISATION":
        raise InputError(f"Quantus's {name} needs masks of the objects, which these images do not have")
    better = {"HIGHER": HIGHER, "LOWER": LOWER}.get(kind.score_direction.name, NEITHER)
    return Metric(
        name=f"{QUANTUS}{name}",
        head=f"Quantus {name}{ {HIGHER: ' ↑', LOWER: ' ↓'}.get(better, '') }",
        formula=(inspect.getdoc(kind) or name).partition("\n")[0],
        source="Quantus",
        better=better,
        function=partial(score, kind),
    )


def _class(name: str) -> Any:
    try:
        import quantus
        from quantus.metrics.base import Metric as Base
    except ModuleNotFoundError as error:
        raise InputError(f"quantus:{name} needs the package quantus: pip install quantus") from error
    kinds = {
        key: value
        for key, value in vars(quantus).items()
        if inspect.isclass(value) and issubclass(value, Base) and value is not Base
    }
    if name not in kinds:
        hint = did_you_mean(name, kinds, otherwise="its names have capitals: quantus:Sparseness", most=2)
        raise InputError(f"Quantus has no metric {name!r}; {hint}")
    return kinds[name]


def score(
    kind: Any, model: nn.Module, images: Tensor, targets: Tensor, maps: Tensor, *, explain: Any, seed: int
) -> np.ndarray:
    """(n,) what the class gives for maps (n, 3, H, W), of which it sees the sum over the channels."""
    known = inspect.signature(kind).parameters
    settings = MANNERS | {"num_classes": count_logits(model, images[:1])}
    with seeded([seed]), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            scores = kind(**{key: value for key, value in settings.items() if key in known})(
                model=model,
                x_batch=images.cpu().numpy(),
                y_batch=targets.cpu().numpy(),
                a_batch=maps.sum(1, keepdim=True).cpu().numpy(),
                device=str(device_of(model)),
                channel_first=True,
                explain_func=partial(_explained, explain),
            )
        except (RuntimeError, AssertionError, ValueError, TypeError, KeyError, AttributeError, IndexError) as error:
            raise InputError(f"Quantus's {kind.__name__} cannot measure this: {error}") from error
    return _numbers(scores, len(images), kind.__name__)


def _explained(explain: Any, model: nn.Module, inputs: np.ndarray, targets: np.ndarray, **options: Any) -> np.ndarray:
    like = next(model.parameters())
    images, classes = torch.as_tensor(inputs).to(like), torch.as_tensor(targets).long().to(like.device)
    maps: Tensor = explain(model, images.clamp(0, 1), classes)
    return maps.sum(1, keepdim=True).cpu().numpy()


def _numbers(scores: Any, count: int, name: str) -> np.ndarray:
    try:
        array = np.asarray(scores, dtype=np.float64)
    except (TypeError, ValueError):
        array = np.empty(0)
    if array.shape != (count,):
        raise InputError(f"Quantus's {name} gives no number for each image by default; pass a function that makes one")
    return array
