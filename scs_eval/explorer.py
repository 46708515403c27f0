"""The explorer for Jupyter: pick an image, a model, a method and a class, and the maps follow.

ipywidgets is imported when an explorer is made: the rest of the package works without it.
"""

import base64
import html
import io
import time
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from scs_eval.analyses.attribution.attribute import attribute
from scs_eval.analyses.attribution.completeness import percent
from scs_eval.analyses.attribution.methods import METHODS, find_method
from scs_eval.analyses.contributions import ContributionsResult, contributions
from scs_eval.analyses.core.model_state import evaluating
from scs_eval.analyses.core.validation import logits_of
from scs_eval.analyses.plotting import colour
from scs_eval.analyses.plotting.map_columns import COLOURS, scaled
from scs_eval.errors import InputError
from scs_eval.models.loading.load import load_model

if TYPE_CHECKING:
    from torch import Tensor, nn

    from scs_eval.data import ImageData

CHEAP = tuple(name for name, method in METHODS.items() if method.cheap and "attention" not in method.needs)
SIDE = 200  # pixels of a picture on the screen
PREDICTED, TRUE = "predicted", "true class"


def explore(
    models: "Mapping[str, nn.Module] | Sequence[str]", data: "ImageData", *, methods: Sequence[str] = CHEAP
) -> "Explorer":
    """An explorer of these models (by label, or sources for `load_model`) on these images; Jupyter displays it."""
    return Explorer(models, data, methods=methods)


class Explorer:
    """Four choices and what follows from them.

    image, model, method, class_: the widgets; setting their `value` is what a click does.
    view: the widget that shows the maps. seconds: how long the last update took.
    """

    def __init__(
        self, models: "Mapping[str, nn.Module] | Sequence[str]", data: "ImageData", *, methods: Sequence[str] = CHEAP
    ) -> None:
        for name in methods:
            find_method(name)
        if not (len(models) and len(data) and len(methods)):
            raise InputError(f"expected models, images and methods, got {len(models)}, {len(data)}, {len(methods)}")
        widgets = _widgets()
        named = models if isinstance(models, Mapping) else {name: load_model(name) for name in models}
        self.models, self.data, self.seconds = dict(named), data, 0.0
        self.image = widgets.Dropdown(options=_captions(data), description="image")
        self.model = widgets.Dropdown(options=list(self.models), description="model")
        self.method = widgets.Dropdown(options=list(methods), description="method")
        self.class_ = widgets.Dropdown(options=[PREDICTED, TRUE, *data.classes], description="class")
        self.view = widgets.HTML()
        choices = self.image, self.model, self.method, self.class_
        self.box = widgets.VBox([widgets.HBox(choices[:2]), widgets.HBox(choices[2:]), self.view])
        for choice in choices:
            choice.observe(self._update, names="value")
        self._warm_up()

    def _repr_mimebundle_(self, **options: Any) -> Any:
        return self.box._repr_mimebundle_(**options)

    def _warm_up(self) -> None:
        """Every method once: torch and captum load parts of themselves when first asked, which no click should pay."""
        for name in reversed(self.method.options):
            self.method.value = name
        self._update()

    def _update(self, _change: object = None) -> None:
        """Show the maps of what is chosen now, or in one line why there are none."""
        start = time.perf_counter()
        try:
            content = self._content()
        except InputError as error:
            content = f"<p>{html.escape(str(error))}</p>"
        self.seconds = time.perf_counter() - start
        self.view.value = f"{content}<p><small>{1000 * self.seconds:.0f} ms</small></p>"

    def _content(self) -> str:
        model, data, position = self.models[self.model.value], self.data, self.image.value
        image, label = data.images[position : position + 1], int(data.labels[position])
        with evaluating(model), torch.no_grad():
            logits = logits_of(model, image, classes=len(data.classes))[0].cpu()
        target = self._target(logits, label)
        maps = attribute(model, image, torch.tensor([target]), method=self.method.value)
        decomposed = (
            _decomposed(model, image, target, data.classes)
            if find_method(self.method.value).adds_up_to == "logit"
            else None
        )
        lines = [_answer(self.model.value, logits, label, data.classes)]
        lines.append(f"Explained: {data.classes[target]}, logit {logits[target]:.2f}{_sum(decomposed)}.")
        return _row(_pictures(image, maps, decomposed)) + "".join(f"<p>{html.escape(line)}</p>" for line in lines)

    def _target(self, logits: "Tensor", label: int) -> int:
        asked = self.class_.value
        own = {PREDICTED: int(logits.argmax()), TRUE: label}
        return own[asked] if asked in own else self.data.classes.index(asked)


def _widgets() -> Any:
    try:
        return import_module("ipywidgets")
    except ImportError as error:
        raise InputError("the explorer needs ipywidgets; pip install 'scs-eval[notebooks]'") from error


def _captions(data: "ImageData") -> list[tuple[str, int]]:
    """What an image is called, and its place."""
    pairs = zip(data.labels.tolist(), data.indices.tolist(), strict=True)
    return [(f"{data.classes[label]}, {index}", position) for position, (label, index) in enumerate(pairs)]


def _decomposed(model: "nn.Module", image: "Tensor", target: int, classes: Sequence[str]) -> ContributionsResult:
    return contributions(model, image, torch.tensor([target]), classes=classes)


def _answer(name: str, logits: "Tensor", label: int, classes: Sequence[str]) -> str:
    """What the model says, with the three likeliest classes, and what is true."""
    chances, places = logits.softmax(0).topk(min(3, len(classes)))
    likeliest = ", ".join(f"{classes[k]} {percent(p)}" for p, k in zip(chances.tolist(), places.tolist(), strict=True))
    return f"{name} says {likeliest} (label: {classes[label]})."


def _sum(decomposed: ContributionsResult | None) -> str:
    """What the logit is made of, where W(x) tells."""
    if decomposed is None:
        return ""
    row = decomposed.table().iloc[0]
    return f" = {row['contributions']:.2f} from pixels + {row['bias']:.2f} bias + {row['residual']:.0e} residual"


def _pictures(image: "Tensor", maps: "Tensor", decomposed: ContributionsResult | None) -> dict[str, np.ndarray]:
    """Title to picture (H, W, 3): the image, W(x) as colours where there are any, size and sign of the map."""
    from matplotlib import colormaps

    channels = maps.detach().cpu().double().numpy()[0]
    pictures = {"image": image[0].permute(1, 2, 0).numpy()}
    if decomposed is not None and decomposed.coloured:
        pictures["W(x) as colours"] = colour.on_white(decomposed.rgba())[0]
    pictures["size: largest |value| of the channels"] = colormaps[COLOURS](scaled(np.abs(channels).max(0)))[..., :3]
    pictures["sign: for (orange) and against (blue)"] = colour.signed(channels.sum(0)[None])[0]
    return pictures


def _row(pictures: Mapping[str, np.ndarray]) -> str:
    """Pictures side by side with their titles below, their pixels as they are."""
    crisp = f'style="width:{SIDE}px;image-rendering:pixelated;border:1px solid #8888"'
    cells = [
        f'<figure style="margin:4px;width:{SIDE}px"><img {crisp} alt="{html.escape(title)}" src="{_source(picture)}">'
        f"<figcaption>{html.escape(title)}</figcaption></figure>"
        for title, picture in pictures.items()
    ]
    return f'<div style="display:flex;flex-wrap:wrap;line-height:1.3">{"".join(cells)}</div>'


def _source(picture: np.ndarray) -> str:
    from PIL import Image

    file = io.BytesIO()
    Image.fromarray((255 * picture.clip(0, 1)).round().astype(np.uint8)).save(file, format="png")
    return f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}"
