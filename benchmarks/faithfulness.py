"""Every faithfulness metric that Quantus has as well: the same maps, settings and values, metric by metric.

Grey images, so that a pixel is one feature in Quantus, too, behind a network that makes three equal channels of them.
The maps are random but for the randomisation test, which makes its own; whether a metric likes them costs nothing.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from typing import Any
from unittest import mock

import numpy as np
import torch
from torch import Tensor, nn

from scs_eval.analyses.attribution.metrics import entropy, gini
from scs_eval.analyses.attribution.similarity import spearman
from scs_eval.analyses.core.model_state import evaluating
from scs_eval.analyses.faithfulness.infidelity import infidelity
from scs_eval.analyses.faithfulness.pixel_curves import counts_of, ranks_of, replacement_curve, rising_share
from scs_eval.analyses.faithfulness.randomisation import cascade, depths_of
from scs_eval.analyses.faithfulness.road import SHARES, road
from scs_eval.benchmarks.contest import Growth, Say, Settings, Target, contest
from scs_eval.benchmarks.work import pixel_gradient
from scs_eval.data import load_data
from scs_eval.models.loading.load import load_model

SUITE = "faithfulness"
MODEL, IMAGES = "rohrer100k_scs", 16
STEPS, SIGMA, SAMPLES = 32, 0.02, 50  # of the curves and of infidelity: our defaults
EACH, SUM = 5.0, 10.0  # times as fast
QUIET: dict[str, Any] = {"abs": False, "normalise": False, "disable_warnings": True, "display_progressbar": False}
TOLERANCE = 1e-3  # float32 through the network in other batches; of values up to 1, and relative above

Metric = Callable[[], np.ndarray]


class Grey(nn.Module):
    """A network for grey images (N, 1, H, W)."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: Tensor) -> Tensor:
        """Logits of the three equal channels."""
        return self.network(x.float().expand(-1, 3, -1, -1))


@dataclass(frozen=True)
class Case:
    """What both are asked: a network, grey images (n, 1, H, W), classes (n,) and maps (n, H, W)."""

    model: nn.Module
    images: Tensor
    classes: Tensor
    maps: Tensor

    @property
    def arguments(self) -> dict[str, Any]:
        """The same for Quantus."""
        return {
            "model": self.model, "x_batch": self.images.numpy(), "y_batch": self.classes.numpy(),
            "a_batch": self.maps[:, None].numpy().copy(), "channel_first": True, "device": "cpu",
        }  # fmt: skip


def case(images: int = IMAGES) -> Case:
    """Images of the sample, and maps without two equal values."""
    grey = load_data("sample", n=images).images[:].mean(1, keepdim=True)
    model = Grey(load_model(MODEL)).eval().requires_grad_(False)
    with torch.no_grad():
        classes = model(grey).argmax(1)
    draw = torch.Generator().manual_seed(0)
    pixels = grey.shape[2] * grey.shape[3]
    maps = torch.stack([torch.randperm(pixels, generator=draw) for _ in grey]).view(len(grey), *grey.shape[2:])
    return Case(model, grey, classes, (maps + 1) / pixels - 0.5)


def targets(settings: Settings, say: Say) -> Iterator[Target]:
    """A line for each metric, and one for their sum."""
    try:
        import_module("quantus")
    except ModuleNotFoundError:
        say("quantus is not installed: faithfulness is compared with nothing (pip install quantus)")
        return
    given = case()
    ours: list[tuple[float, ...]] = []
    theirs: list[tuple[float, ...]] = []
    for name, (our_metric, their_metric) in pairs(given).items():
        check_agreement(name, our_metric(), their_metric())
        with evaluating(given.model):
            seconds = contest({"ours": our_metric, "theirs": their_metric}, rounds=settings.rounds, warmup=1)
        ours.append(seconds["ours"])
        theirs.append(seconds["theirs"])
        yield _target(f"{name}, {len(given.images)} images", EACH, seconds["ours"], seconds["theirs"])
    yield _target(f"all {len(ours)} metrics in sum", SUM, _sums(ours), _sums(theirs))


def _sums(parts: list[tuple[float, ...]]) -> tuple[float, ...]:
    """Round by round."""
    return tuple(map(sum, zip(*parts, strict=True)))


def _target(what: str, goal: float, ours: tuple[float, ...], theirs: tuple[float, ...]) -> Target:
    why = "what both spend in the network, most of the time, is the same; Quantus loses less beside it than elsewhere"
    return Target(
        suite=SUITE, what=f"{MODEL}: {what}", against="Quantus, the same values", goal=goal, faster=True, ours=ours,
        theirs=theirs, why=why,
    )  # fmt: skip


def check_agreement(name: str, ours: np.ndarray, theirs: np.ndarray) -> None:
    """Raise unless the values are the same: else two different things would be timed."""
    gap = float((np.abs(ours - theirs) / np.maximum(np.abs(theirs), 1)).max())
    if not gap <= TOLERANCE:
        raise RuntimeError(f"{name}: our values and those of Quantus differ by {gap:.2g}")


def pairs(given: Case) -> dict[str, tuple[Metric, Metric]]:
    """Metric → ours and Quantus', each from nothing to an array of values."""
    return {
        "deletion and monotonicity": (lambda: _our_deletion(given), lambda: _their_deletion(given)),
        "insertion": (lambda: _our_curve(given, insertion=True)[:, 1:], lambda: _put_in(given)),
        "infidelity": (lambda: _our_infidelity(given), lambda: _infidelity(given)),
        "randomisation": (lambda: _our_randomisation(given), lambda: _mprt(given)),
        "ROAD": (lambda: _our_road(given), lambda: _road(given)),
        "sparseness": (lambda: gini(given.maps.abs()), lambda: _simple("Sparseness", given)),
        "complexity": (lambda: _our_complexity(given), lambda: _simple("Complexity", given)),
    }


def _our_curve(given: Case, *, insertion: bool) -> np.ndarray:
    """(n, steps + 1); Quantus does not ask the start."""
    counts = counts_of(given.maps[0].numel(), STEPS)
    ends = (torch.zeros_like(given.images), given.images)
    start, end = ends if insertion else reversed(ends)
    ranks = ranks_of(given.maps, seed=0)
    return replacement_curve(given.model, start, end, given.classes, ranks, counts=counts).numpy()


def _our_deletion(given: Case) -> np.ndarray:
    """(n, steps + 1): the curve, and whether it rises all the way when it is walked back, as our analysis has it."""
    curve = _our_curve(given, insertion=False)
    return np.column_stack([curve[:, 1:], rising_share(curve[:, ::-1]) == 1])


def _their_deletion(given: Case) -> np.ndarray:
    quantus: Any = import_module("quantus")

    options = {"features_in_step": given.maps[0].numel() // STEPS, "perturb_func": _put_back(given)}
    metric = quantus.Monotonicity(**options, perturb_baseline=0.0, **QUIET)
    return np.column_stack([_pixel_flipping(given), metric(**given.arguments, softmax=True)])


def _pixel_flipping(given: Case) -> np.ndarray:
    quantus: Any = import_module("quantus")

    metric = quantus.PixelFlipping(features_in_step=given.maps[0].numel() // STEPS, perturb_baseline=0.0, **QUIET)
    return np.array(metric(**given.arguments, softmax=True))


def _put_in(given: Case) -> np.ndarray:
    """Quantus has no insertion: its pixel flipping from black, each pixel replaced by the image's own."""
    quantus: Any = import_module("quantus")

    step = given.maps[0].numel() // STEPS
    metric = quantus.PixelFlipping(features_in_step=step, perturb_func=_put_back(given), **QUIET)
    black = {**given.arguments, "x_batch": np.zeros_like(given.images.numpy())}
    return np.array(metric(**black, softmax=True))


def _put_back(given: Case) -> Callable[..., np.ndarray]:
    """The image's own pixels; Quantus 0.6 puts the baseline where the baseline is already."""
    pixels = given.images.flatten(1).numpy()

    def put_back(arr: np.ndarray, indices: np.ndarray, **_: object) -> np.ndarray:
        filled = arr.copy()
        np.put_along_axis(filled, indices, np.take_along_axis(pixels, indices, 1), 1)
        return filled

    return put_back


def _shares(given: Case) -> Tensor:
    """(samples, 1, H, W), as our infidelity draws them."""
    return SIGMA * torch.randn(SAMPLES, 1, *given.images.shape[2:], generator=torch.Generator().manual_seed(0))


def _our_infidelity(given: Case) -> np.ndarray:
    return infidelity(
        given.model, given.images, given.classes, given.maps[:, None], gradient=True, scale=False, sigma=SIGMA,
        samples=SAMPLES, seed=0,
    ).numpy()  # fmt: skip


def _infidelity(given: Case) -> np.ndarray:
    """One patch, as large as the image, in which every pixel loses our share of itself."""
    quantus: Any = import_module("quantus")

    draws = iter(_shares(given).flatten(1).numpy())

    def lose(arr: np.ndarray, indices: np.ndarray, **_: object) -> np.ndarray:
        return arr - next(draws) * arr

    side = given.images.shape[-1]
    metric = quantus.Infidelity(perturb_patch_sizes=[side], n_perturb_samples=SAMPLES, perturb_func=lose, **QUIET)
    return np.array(metric(**given.arguments, softmax=False, batch_size=len(given.images)))


def _explained(model: nn.Module, images: Tensor, classes: Tensor) -> np.ndarray:
    """(n, H, W) |gradient| of the logit: what both call at every depth."""
    return pixel_gradient(model, images, classes).abs().sum(1).numpy()


def _our_randomisation(given: Case) -> np.ndarray:
    """(depths · n,) Spearman's correlation with the map of the network that forgets layer by layer."""
    first = _explained(given.model, given.images, given.classes).astype(np.float64)
    networks = cascade(given.model, depths_of(given.model, given.images[:1]), seed=0)
    return np.concatenate(
        [spearman(first, _explained(network, given.images, given.classes).astype(np.float64)) for network in networks]
    )


def _mprt(given: Case) -> np.ndarray:
    """Quantus' test with our networks: its own forget in another way."""
    quantus: Any = import_module("quantus")
    wrapper: Any = import_module("quantus.helpers.model.pytorch_model")

    depths = depths_of(given.model, given.images[:1])

    def forgetting(_: Any, **__: object) -> Iterator[tuple[str, nn.Module]]:
        yield from zip((depth.name for depth in depths), cascade(given.model, depths, seed=0), strict=True)

    def explain(model: nn.Module, inputs: np.ndarray, targets: np.ndarray, **_: object) -> np.ndarray:
        return _explained(model, torch.from_numpy(inputs), torch.from_numpy(targets))[:, None]

    arguments = {**given.arguments, "a_batch": _explained(given.model, given.images, given.classes)[:, None]}
    with mock.patch.object(wrapper.PyTorchModel, "get_random_layer_generator", forgetting):
        scores = quantus.MPRT(**QUIET)(**arguments, explain_func=explain, batch_size=len(given.images))
    return np.concatenate([scores[depth.name] for depth in depths])


def _our_road(given: Case) -> np.ndarray:
    """(shares,) how many keep their class; without noise, of which each has its own."""
    ranks = ranks_of(given.maps, seed=0)
    return road(given.model, given.images, given.classes, ranks, noise=0.0).double().mean(0).numpy()


def _road(given: Case) -> np.ndarray:
    quantus: Any = import_module("quantus")

    percentages = [round(100 * share) for share in SHARES]
    metric = quantus.ROAD(percentages=percentages, noise=0.0, **QUIET)
    scores = metric(**given.arguments, softmax=False)
    return np.array([scores[percentage] for percentage in percentages])


def _our_complexity(given: Case) -> np.ndarray:
    """In nats, as theirs."""
    return entropy(given.maps.abs()) * np.log(given.maps[0].numel())


def _simple(name: str, given: Case) -> np.ndarray:
    quantus: Any = import_module("quantus")

    arguments = {**given.arguments, "a_batch": given.maps.abs()[:, None].numpy().copy()}
    return np.array(getattr(quantus, name)(**QUIET)(**arguments))


def growths(settings: Settings, say: Say) -> Iterator[Growth]:
    """All of them are proportional to the images."""
    return iter(())
