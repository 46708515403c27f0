"""What one model says of one image: pictures and sentences, for whatever shows them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch

from scs_eval.analyses.attacks.attack import attack
from scs_eval.analyses.attacks.config import Attack
from scs_eval.analyses.attacks.kinds import ATTACKS
from scs_eval.analyses.attacks.own_attacks import as_attacks
from scs_eval.analyses.attribution.attribute import attribute
from scs_eval.analyses.attribution.completeness import percent, ratio, totals
from scs_eval.analyses.attribution.methods import METHODS, MapOptions, Method, find_method
from scs_eval.analyses.attribution.metric_records import METRICS
from scs_eval.analyses.attribution.own_metrics import measure
from scs_eval.analyses.attribution.wx import check_complete, contributions_of_colours
from scs_eval.analyses.core.model_state import device_of, evaluating
from scs_eval.analyses.core.validation import logits_of
from scs_eval.analyses.plotting import colour
from scs_eval.analyses.plotting.map_columns import COLOURS, unit_scaled
from scs_eval.errors import InputError
from scs_eval.models.explain.decomposition import Decomposition, decompose
from scs_eval.models.layers.encoding import LogitLayer

if TYPE_CHECKING:
    from torch import Tensor, nn

    from scs_eval.data import ImageData

PREDICTED, TRUE = "predicted", "true class"
EPS = (0.0, 1 / 255, 2 / 255, 4 / 255, 8 / 255, 16 / 255)  # what is offered
SIZE, SIGN = "size: largest |value| of the channels", "sign: for (orange) and against (blue)"


def offered_methods() -> tuple[str, ...]:
    """Those of one or two passes, and all that are registered from outside by now."""
    outside = METHODS.from_outside()
    cheap = [name for name, method in METHODS.items() if method.cheap and "attention" not in method.needs]
    return tuple(dict.fromkeys([*cheap, *outside]))


def offered_attacks() -> tuple[str, ...]:
    """PGD, and those from outside that stay in an L∞ ball."""
    return ("pgd", *(name for name in ATTACKS.from_outside() if "linf" in ATTACKS[name].norms))


@dataclass(frozen=True, kw_only=True)
class View:
    """Titles → pictures (H, W, 3) in [0, 1], in the order they are shown, and sentences."""

    pictures: Mapping[str, np.ndarray] = field(default_factory=dict)
    sentences: Sequence[str] = ()


def check_choices(models: Sequence[object] | Mapping[str, object], data: "ImageData", methods: Sequence[str]) -> None:
    """Raise unless there is something to choose of everything."""
    for name in methods:
        find_method(name)
    if not (len(models) and len(data) and len(methods)):
        raise InputError(f"expected models, images and methods, got {len(models)}, {len(data)}, {len(methods)}")


def captions(data: "ImageData") -> list[str]:
    """What each image is called."""
    pairs = zip(data.labels.tolist(), data.indices.tolist(), strict=True)
    return [f"{class_name(label, data.classes)}, {index}" for label, index in pairs]


def class_name(label: int, classes: Sequence[str]) -> str:
    """The class of an image; of one without a label, that."""
    return classes[label] if label >= 0 else "no label"


def look(
    name: str,
    model: "nn.Module",
    data: "ImageData",
    position: int,
    *,
    method: str,
    class_: str,
    eps: float = 0.0,
    attack_name: str = "pgd",
) -> View:
    """The maps of a class by a method, and with ε above 0 the attacked image and its map.

    class_: `PREDICTED`, `TRUE` or the name of a class. The attack (in L∞, with its usual budget) moves away from the
    label, or from the prediction where there is no label. Metrics from outside have a sentence each.
    """
    image, label = data.images[position : position + 1], int(data.labels[position])
    logits = _logits(model, image, data.classes)
    target = _target(class_, logits, label, data.classes)
    explained = _explain(model, image, target, method)
    pictures, sum_ = _pictures(image, explained), _sum(model, image, explained, target, method)
    sentences = [
        _answer(f"{name} says", logits, label, data.classes),
        f"Explained: {data.classes[target]}, logit {logits[target]:.2f}{sum_}.",
        *_scores(model, image, explained.maps, target, method),
    ]
    if eps > 0:
        truth = label if label >= 0 else int(logits.argmax())
        (chosen,) = as_attacks([attack_name])
        more, sentence = _attacked(model, image, truth, eps, chosen, target, method, data.classes)
        pictures |= more
        sentences.append(sentence)
    return View(pictures=pictures, sentences=sentences)


def _logits(model: "nn.Module", image: "Tensor", classes: Sequence[str]) -> "Tensor":
    with evaluating(model), torch.no_grad():
        return logits_of(model, image.to(device_of(model)), classes=len(classes))[0].cpu()


def _target(asked: str, logits: "Tensor", label: int, classes: Sequence[str]) -> int:
    own = {PREDICTED: int(logits.argmax()), **({TRUE: label} if label >= 0 else {})}
    if asked not in own and asked not in classes:
        raise InputError(f"expected {' or '.join(own)} or a class of these images, got {asked!r}")
    return own[asked] if asked in own else list(classes).index(asked)


def _scores(model: "nn.Module", image: "Tensor", maps: "Tensor", target: int, method: str) -> list[str]:
    """A sentence for every metric of maps from outside."""
    explain = partial(attribute, method=method)
    sentences = []
    for name in METRICS.from_outside():
        metric = METRICS[name]
        (value,) = measure(metric, model, image, torch.tensor([target]), maps, explain=explain, seed=0)
        sentences.append(f"{metric.head}: {value:.4g} ({metric.formula})")
    return sentences


class _Explained(NamedTuple):
    """Attributions (1, 3, H, W) of a class, and where they are W(x)⊙x the logit taken apart."""

    maps: "Tensor"
    parts: Decomposition | None = None


def _explain(model: "nn.Module", image: "Tensor", target: int, method: str) -> _Explained:
    """By the method; W(x) and what it leaves to the biases are from the same forward and backward pass."""
    targets = torch.tensor([target])
    if method != "wx":
        return _Explained(attribute(model, image, targets, method=method))
    like = next(model.parameters(), image)
    with evaluating(model):
        parts = decompose(model, image.to(like.device, like.dtype), targets.to(like.device))
    check_complete(parts)
    return _Explained(contributions_of_colours(parts), parts)


def _sum(model: "nn.Module", image: "Tensor", explained: _Explained, target: int, method: str) -> str:
    """How the map makes the logit, or what it leaves out, where it should add up."""
    parts = explained.parts
    if parts is None:
        return _left_out(model, image, explained.maps, target, find_method(method))
    modules = dict(model.named_modules())
    constant = sum(part.item() for name, part in parts.biases.items() if isinstance(modules.get(name), LogitLayer))
    pixels = (parts.weights.cpu().double() * parts.inputs.cpu()).sum().item()
    bias = sum(part.item() for part in parts.biases.values()) - constant
    residual = parts.logits.item() - pixels - bias - constant
    of_all = f" + {constant:.2f} logit bias (all classes)" if constant else ""
    words = f" = {pixels:.2f} from pixels + {bias:.2f} bias{of_all} + {residual:.0e} residual"
    return words.replace("-", "−")


def _left_out(model: "nn.Module", image: "Tensor", maps: "Tensor", target: int, method: Method) -> str:
    with evaluating(model):
        whole = totals(model, image, torch.tensor([target]), method, MapOptions())
    if whole is None:
        return ""
    share = ratio((whole - maps.cpu().double().sum()).abs().numpy(), whole.abs().numpy()).item()
    return f"; the map leaves out {percent(share)} of the {method.adds_up_to}"


def _attacked(
    model: "nn.Module",
    image: "Tensor",
    label: int,
    eps: float,
    chosen: Attack,
    target: int,
    method: str,
    classes: Sequence[str],
) -> tuple[dict[str, np.ndarray], str]:
    """The attacked image with its map of the same class, and what the model says of it."""
    adversarial = attack(model, image, torch.tensor([label]), eps, settings=chosen, at_once=1)
    logits = _logits(model, adversarial.images, classes)
    pictures = _pictures(adversarial.images, _explain(model, adversarial.images, target, method))
    change = (adversarial.images - image)[0].permute(1, 2, 0).cpu().numpy()
    shown = {
        "attacked image": pictures["image"],
        f"the change, from −{255 * eps:.3g}/255 to {255 * eps:.3g}/255": 0.5 + 0.5 * change / eps,
        "attacked, sign": pictures[SIGN],
    }
    outcome = "fooled" if bool(adversarial.is_adversarial[0]) else f"not fooled by {chosen.name} (another attack may)"
    return shown, f"{_answer(f'At ε = {255 * eps:.3g}/255 it says', logits, label, classes)} It is {outcome}."


def _answer(who: str, logits: "Tensor", label: int, classes: Sequence[str]) -> str:
    """What the model says, with the three likeliest classes, and what is true."""
    chances, places = logits.softmax(0).topk(min(3, len(classes)))
    likeliest = ", ".join(f"{classes[k]} {percent(p)}" for p, k in zip(chances.tolist(), places.tolist(), strict=True))
    return f"{who} {likeliest} (label: {class_name(label, classes)})."


def _pictures(image: "Tensor", explained: _Explained) -> dict[str, np.ndarray]:
    """The image, W(x) as colours where there are any, size and sign of the map."""
    from matplotlib import colormaps

    channels, parts = explained.maps.detach().cpu().double().numpy()[0], explained.parts
    pictures = {"image": image[0].permute(1, 2, 0).cpu().numpy()}
    if parts is not None and parts.weights.shape[1] == 6:
        rgba = colour.rgba(parts.weights.cpu().numpy(), parts.inputs.cpu().numpy(), style="paper")
        pictures["W(x) as colours"] = colour.on_white(rgba)[0]
    pictures[SIZE] = colormaps[COLOURS](unit_scaled(np.abs(channels).max(0)))[..., :3]
    pictures[SIGN] = colour.signed(channels.sum(0)[None])[0]
    return pictures
