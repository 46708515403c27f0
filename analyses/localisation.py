"""Does a map point at what it should? The grid pointing game, and two games in which the truth is known.

Images of n² different classes are set side by side; the map of each class should lie in that class's cell. The score is
the positive mass in the right cell over all positive mass (`pointing`). Chance is 1/n²; smoothing leaves a perfect map
a little less than 1. In DiFull and DiPart (`disconnected`) the other cells cannot matter, whatever a map says.
Source: B-cos v2, section 4 and C.2.1, Figures 3 and 5-7; Rao et al. 2022.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from scs_eval.analyses.attribution import check_answer, find_method
from scs_eval.analyses.batching import fitting, in_halves
from scs_eval.analyses.disconnected import LAYER_METHODS, SETTINGS, Disconnected, disconnect, disconnected_maps, tiles
from scs_eval.analyses.game_grids import Grids, compose, places_of
from scs_eval.analyses.game_play import SHOWN, play
from scs_eval.analyses.inputs import check_images, check_labels, logits_of
from scs_eval.analyses.localisation_result import LocalisationResult
from scs_eval.analyses.many_classes import SHARED, pixel_maps
from scs_eval.analyses.partial import Partial, work_key
from scs_eval.analyses.perturbation import MAPS, window
from scs_eval.analyses.pointing import (
    ceiling,
    default_smooth,
    published_scores,
    scores,
    top_counts,
    top_scores,
)
from scs_eval.analyses.shards import from_first
from scs_eval.analyses.state import device_of, evaluating
from scs_eval.analyses.windows import Windows, half_of, has_attention, takes
from scs_eval.errors import InputError
from scs_eval.models.layers import BcosConv2d, BcosLinear

PROTOCOLS = ("paper", "bcos-v2")
LOOKS = ("auto", "whole", "windows")
COARSE = ("gradcam", "normgrad", "rollout")
WHOLE = "whole grid"
FEW = 4  # grids at once of a costly method

Maps = Callable[[Tensor, Tensor], Tensor]  # grids (G, 3, H, W), targets (G, n²) -> (G, n², H, W)


def answers(model: nn.Module, images: Tensor, *, classes: int, progress: Callable[[int], None] | None = None) -> Tensor:
    """The model's logits (N, classes) for single images: what grids are chosen by."""
    check_images(images)
    found = []
    with evaluating(model), torch.inference_mode():
        for part, logits in in_halves(
            len(images), 250, lambda part: logits_of(model, images[part], classes=classes).float().cpu()
        ):
            found.append(logits)
            if progress is not None:
                progress(part.stop - part.start)
        return torch.cat(found).clone()


def localisation(
    model: nn.Module,
    images: Tensor,
    labels: Tensor,
    grids: Grids,
    *,
    classes: Sequence[str],
    method: str = "wx",
    setting: str = "grid",
    protocol: str = "paper",
    smooth: int | None = None,
    top: float | None = None,
    look: str = "auto",
    stride: int | None = None,
    square: int | None = None,
    batch_size: int | None = None,
    indices: Tensor | None = None,
    label: str = "model",
    seed: int = 0,
    correct: tuple[int, int] | None = None,
    wrong: int | None = None,
    partial: str | None = None,
    progress: Callable[[int], None] | None = None,
    resumed: Callable[[int, float], None] | None = None,
) -> LocalisationResult:
    """Play the game with one model and one method on grids of images (N, 3, h, w) in [0, 1].

    grids: from `choose_grids`, `published_grids` or `read_grids`. indices: (N,) what the grids call the images.
    setting: grid, difull or dipart. protocol: paper, or bcos-v2 for the arithmetic of the B-cos authors' code.
    smooth: side of the kernel; by default `default_smooth`, but 1 for methods that are coarse anyway (Grad-CAM, as in
        the paper) and where cells are disconnected, so that nothing moves across their edges.
    top: also score only this many of the strongest pixels, or this share of them if below 1.
    look: at the whole grid, or through windows that move by `stride` (half their side, or less where that is not
        whole); auto: whole if the model can and has no attention.
    square: side of occlusion's square; by default that of a single image, also where the whole grid is seen, so that
        models that see it through windows are asked the same.
    batch_size: grids at once; by default what fits into memory. It is halved when memory runs out.
    correct: of how many images the model has how many right. wrong: how many of the grids' images it has wrong.
    partial: file that an interrupted run goes on from. progress: told how many more grids are done; resumed: how many
        an interrupted run had done, and in how many seconds (by default `progress` is told).
    """
    size = _check(images, labels, classes, method, setting, protocol, look)
    places = places_of(grids, torch.arange(len(images)) if indices is None else indices)
    if smooth is None:
        smooth = 1 if method in COARSE or setting != "grid" else default_smooth(size)
    counts = _top_counts(top, (grids.side * size) ** 2)
    first = compose(images, places[:1], side=grids.side)
    square = _square(square, images, method)
    options: dict[str, Any] = {"method": method, "seed": seed, "encoded": protocol == "bcos-v2", "square": square}
    from_first(lambda: _try(model, images[:1], labels[:1], options))
    seen = _seen(model, first, size, len(classes), setting=setting, look=look, stride=stride)
    heads = None if setting == "grid" else disconnect(model, first, side=grids.side, setting=setting)
    maps_of = _maps_of(model, heads, seen, options)
    score = _scorer(protocol, side=grids.side, smooth=smooth, counts=counts)
    if batch_size is None:
        cells = grids.side**2
        batch_size = from_first(lambda: _batch_size(model, heads, first, seen, method=method, cells=cells))
    settings: dict[str, Any] = {
        "device": str(device_of(model)), "seed": seed, "protocol": protocol, "setting": setting, "look": str(seen),
        "smooth": smooth, "top": top, "method": method, "side": grids.side, "square": square,
    }  # fmt: skip
    key = work_key(model, images, {**settings, "indices": grids.indices.tolist(), "targets": grids.targets.tolist()})
    outcome = play(
        maps_of, score, images, places, torch.from_numpy(grids.targets), side=grids.side, smooth=smooth,
        batch_size=batch_size, store=Partial(partial, key) if partial else None, progress=progress, resumed=resumed,
    )  # fmt: skip
    return LocalisationResult(
        label=label,
        settings=settings,
        model=label,
        method=method,
        setting=setting,
        protocol=protocol,
        seen=str(seen),
        side=grids.side,
        smooth=smooth,
        square=square,
        classes=tuple(classes),
        indices=grids.indices,
        targets=grids.targets,
        scores=outcome["scores"],
        ceiling=ceiling(size=size, side=grids.side, smooth=smooth).numpy(),
        top=counts[0] if counts else None,
        top_counts=np.array(counts[1] if counts else [], dtype=np.int64),
        top_scores=outcome["top_scores"],
        images=compose(images, places[:SHOWN], side=grids.side).cpu().numpy().astype(np.float32),
        maps=outcome["maps"].astype(np.float32),
        asked=grids.asked,
        pool=grids.pool,
        usable=grids.usable,
        correct=correct,
        wrong=wrong,
        b=_b_of(model),
        seconds=float(outcome["seconds"]) / len(grids),
    )


def _check(
    images: Tensor, labels: Tensor, classes: Sequence[str], method: str, setting: str, protocol: str, look: str
) -> int:
    """The side of the images, if the request makes sense."""
    find_method(method)
    check_images(images)
    check_labels(labels, images=images, classes=classes)
    for name, value, known in (
        ("setting", setting, SETTINGS),
        ("protocol", protocol, PROTOCOLS),
        ("look", look, LOOKS),
    ):
        if value not in known:
            raise InputError(f"expected a {name} of {', '.join(known)}, got {value!r}")
    if images.shape[2] != images.shape[3]:
        raise InputError(f"expected square images, got {images.shape[2]}×{images.shape[3]}")
    return images.shape[2]


def _try(model: nn.Module, image: Tensor, label: Tensor, options: dict[str, Any]) -> None:
    """Raise now what would be raised later: of one image, because it needs less memory than a grid."""
    method = options["method"]
    with evaluating(model), torch.enable_grad():
        check_answer(model, image, label, gradient=find_method(method).gradient, method=method)
    pixel_maps(model, image, label[:, None], **options)


def _b_of(model: nn.Module) -> float | None:
    """The exponent of a B-cos network, if all its layers have the same."""
    found = {float(module.b) for module in model.modules() if isinstance(module, BcosConv2d | BcosLinear)}
    return found.pop() if len(found) == 1 else None


def _top_counts(top: float | None, pixels: int) -> tuple[int, list[int]] | None:
    """How many pixels are asked for, and where the curve is measured."""
    if top is None:
        return None
    if not 0 < top <= pixels or (top >= 1 and top != int(top)):
        raise InputError(f"expected --top as a share below 1 or a whole number of at most {pixels} pixels, got {top:g}")
    asked = int(top) if top >= 1 else max(1, round(top * pixels))
    return asked, top_counts(pixels, asked=asked)


def _seen(
    model: nn.Module, grid: Tensor, size: int, classes: int, *, setting: str, look: str, stride: int | None
) -> Windows | str:
    """How the model looks at a grid: through windows, or in words how else."""
    if setting != "grid":
        return "cell by cell" if setting == "difull" else WHOLE
    if look == "whole" and not takes(model, grid, classes=classes):
        raise InputError(f"the model cannot take a grid of {grid.shape[2]}×{grid.shape[3]}; let it look at windows")
    if look == "whole" or (look == "auto" and not has_attention(model) and takes(model, grid, classes=classes)):
        return WHOLE
    return Windows(size, half_of(size) if stride is None else stride)


def _square(asked: int | None, images: Tensor, method: str) -> int | None:
    """The side of occlusion's square, which fits into a single image; other methods have none."""
    if method != "occlusion":
        if asked is not None:
            raise InputError(f"expected a square for occlusion alone, got one for {method}")
        return None
    square = window(images) if asked is None else asked
    if not 1 <= square <= images.shape[2]:
        raise InputError(f"expected --square from 1 to {images.shape[2]} pixels, an image's side, got {square}")
    return square


def _maps_of(model: nn.Module, heads: Disconnected | None, seen: Windows | str, options: dict[str, Any]) -> Maps:
    if heads is not None:
        return lambda grids, targets: disconnected_maps(heads, grids, targets, **options)

    def plain(pictures: Tensor, targets: Tensor) -> Tensor:
        return pixel_maps(model, pictures, targets, **options)

    return plain if isinstance(seen, str) else lambda grids, targets: seen.maps(plain, grids, targets)


def _scorer(
    protocol: str, *, side: int, smooth: int, counts: tuple[int, list[int]] | None
) -> Callable[[Tensor], tuple[Tensor, Tensor]]:
    """From maps (G, n², H, W) to scores (G, n²) and those of the strongest pixels (G, n², T)."""
    rule = published_scores if protocol == "bcos-v2" else scores

    def score(maps: Tensor) -> tuple[Tensor, Tensor]:
        some = counts[1] if counts else []
        tops = top_scores(maps, side=side, smooth=smooth, counts=some) if some else torch.zeros(*maps.shape[:2], 0)
        return rule(maps, side=side, smooth=smooth), tops

    return score


def _batch_size(
    model: nn.Module, heads: Disconnected | None, grid: Tensor, seen: Windows | str, *, method: str, cells: int
) -> int:
    """How many grids fit: a grid is its windows or cells, and there for every class unless the method shares passes.

    Of methods that take many passes for a grid only a few at once, so that the bar moves and little is lost.
    """
    if method in MAPS:
        return 1  # they go image by image anyway
    shared = (*SHARED, *LAYER_METHODS) if heads is not None else SHARED
    if heads is not None and heads.layer is None:
        fits = fitting(model, tiles(grid, heads.side)[:1], each=cells)  # a cell is asked about one class
    elif isinstance(seen, Windows):
        windows = seen.cut(grid)
        fits = fitting(model, windows[:1], each=len(windows) * (1 if method in shared else cells))
    else:
        fits = fitting(heads or model, grid, each=1 if method in shared else cells)
    return fits if find_method(method).cheap else min(FEW, fits)
