"""The explorer for Jupyter. ipywidgets is imported when one is made: the rest of the package works without it."""

import base64
import html
import io
import time
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np

from scs_eval.analyses.attribution.own_methods import as_method_names
from scs_eval.errors import InputError
from scs_eval.explorer.view import (
    EPS,
    PREDICTED,
    TRUE,
    View,
    captions,
    check_choices,
    look,
    offered_attacks,
    offered_methods,
)
from scs_eval.models.loading.load import load_model

if TYPE_CHECKING:
    from torch import nn

    from scs_eval.analyses.attribution.own_methods import MethodLike
    from scs_eval.data import ImageData

SIDE = 200  # pixels of a picture on the screen


def explore(
    models: "Mapping[str, nn.Module] | Sequence[str]",
    data: "ImageData",
    *,
    methods: "Sequence[MethodLike] | None" = None,
) -> "Explorer":
    """An explorer of these models (by label, or sources for `load_model`) on these images; Jupyter displays it.

    methods: as `attribute` takes them; by default those of one or two passes and all that were registered.

    >>> import scs_eval
    >>> explorer = scs_eval.explore(["rohrer25k_scs"], scs_eval.load_data("sample", n=2), methods=["grad"])
    >>> explorer.eps.value = 8 / 255
    >>> "fooled" in explorer.content
    True
    """
    return Explorer(models, data, methods=methods)


class Explorer:
    """Six choices and what follows from them.

    image, model, method, class_, attack, eps: the widgets; setting their `value` is what a click does.
    content: the HTML below them. seconds: how long the last update took.
    The content is an output of the cell and no widget: it stays where widgets do not, in exported notebooks.
    """

    def __init__(
        self,
        models: "Mapping[str, nn.Module] | Sequence[str]",
        data: "ImageData",
        *,
        methods: "Sequence[MethodLike] | None" = None,
    ) -> None:
        names = offered_methods() if methods is None else as_method_names(methods)
        check_choices(models, data, names)
        widgets = _widgets()
        named = models if isinstance(models, Mapping) else {name: load_model(name) for name in models}
        self.models, self.data, self.seconds, self.content = dict(named), data, 0.0, ""
        self._display: Any = None
        places = [(caption, index) for index, caption in enumerate(captions(data))]
        self.image = widgets.Dropdown(options=places, description="image")
        self.model = widgets.Dropdown(options=list(self.models), description="model")
        self.method = widgets.Dropdown(options=list(names), description="method")
        self.class_ = widgets.Dropdown(options=[PREDICTED, TRUE, *data.classes], description="class")
        self.attack = widgets.Dropdown(options=list(offered_attacks()), description="attack")
        self.eps = widgets.Dropdown(options=[(f"{255 * eps:g}/255", eps) for eps in EPS], description="its ε")
        choices = self.image, self.model, self.method, self.class_, self.attack, self.eps
        self.box = widgets.VBox([widgets.HBox(choices[:2]), widgets.HBox(choices[2:])])
        for choice in choices:
            choice.observe(self._update, names="value")
        self._warm_up()

    def _ipython_display_(self) -> None:
        from IPython.display import HTML, display

        display(self.box)
        self._display = display(HTML(self.content), display_id=True)

    def _warm_up(self) -> None:
        """Every method once: torch and captum load parts of themselves when first asked, which no click should pay."""
        for name in reversed(self.method.options):
            self.method.value = name
        self._update()

    def _update(self, _change: object = None) -> None:
        """Show the maps of what is chosen now, or in one line why there are none."""
        start = time.perf_counter()
        try:
            content = _html(self._view())
        except InputError as error:
            content = f"<p>{html.escape(str(error))}</p>"
        self.seconds = time.perf_counter() - start
        self.content = f"{content}<p><small>{1000 * self.seconds:.0f} ms</small></p>"
        if self._display is not None:
            from IPython.display import HTML

            self._display.update(HTML(self.content))

    def _view(self) -> View:
        return look(
            self.model.value, self.models[self.model.value], self.data, self.image.value,
            method=self.method.value, class_=self.class_.value, eps=self.eps.value,
            attack_name=self.attack.value,
        )  # fmt: skip


def _widgets() -> Any:
    try:
        return import_module("ipywidgets")
    except ImportError as error:
        raise InputError("the explorer needs ipywidgets; pip install 'scs-eval[notebooks]'") from error


def _html(view: View) -> str:
    """Pictures side by side with their titles below, their pixels as they are; then the sentences."""
    crisp = f'style="width:{SIDE}px;image-rendering:pixelated;border:1px solid #8888"'
    cells = [
        f'<figure style="margin:4px;width:{SIDE}px"><img {crisp} alt="{html.escape(title)}" src="{png_uri(picture)}">'
        f"<figcaption>{html.escape(title)}</figcaption></figure>"
        for title, picture in view.pictures.items()
    ]
    row = f'<div style="display:flex;flex-wrap:wrap;line-height:1.3">{"".join(cells)}</div>'
    return row + "".join(f"<p>{html.escape(sentence)}</p>" for sentence in view.sentences)


def png_uri(picture: np.ndarray) -> str:
    """A picture (H, W, 3) in [0, 1] as a data URI."""
    from PIL import Image

    file = io.BytesIO()
    Image.fromarray((255 * picture.clip(0, 1)).round().astype(np.uint8)).save(file, format="png")
    return f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}"
