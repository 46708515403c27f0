"""Does a map point at what it should? The grid pointing game, and two games in which the truth is known.

Images of n² different classes are set side by side in a mosaic; the map of each class should lie in that class's cell.
The score is the positive mass in the right cell over all positive mass (`score`). Chance is 1/n²; smoothing leaves a
perfect map a little less than 1. In DiFull and DiPart (`disconnected`) the other cells cannot matter, whatever a map
says. Source: B-cos v2, section 4 and C.2.1, Figures 3 and 5-7; Rao et al. 2022.

    mosaics = select_mosaics(models, data, MosaicOptions(side=2, count=20))
    results = [localisation(model, data, mosaics[name], label=name) for name, model in models.items()]
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from scs_eval.analyses.localisation.options import LocalisationOptions as LocalisationOptions
from scs_eval.analyses.localisation.options import MosaicOptions as MosaicOptions

if TYPE_CHECKING:  # the command line reads the options from here, and must not wait for torch
    from torch import Tensor, nn

    from scs_eval.analyses.attribution.own_methods import MethodLike
    from scs_eval.analyses.core.inputs import ArrayLike, ImagesLike
    from scs_eval.analyses.localisation.mosaics import Mosaics
    from scs_eval.analyses.localisation.result import LocalisationResult


def localisation(
    model: "nn.Module | str",
    data: "ImagesLike",
    mosaics: "Mosaics | ArrayLike | None" = None,
    options: LocalisationOptions | None = None,
    *,
    method: "MethodLike" = "wx",
    label: str = "model",
    seed: int = 0,
    predictions: "Tensor | None" = None,
) -> "LocalisationResult":
    """Grid pointing scores of one model by one attribution method, for every cell of every mosaic.

    data: images (N, 3, h, h) in [0, 1] with labels, classes and the indices by which `mosaics` knows them; or arrays
        of images, with their labels (N,) in the place of mosaics.
    mosaics: from `select_mosaics`, which also chooses them if none are given, or `choose_mosaics`, `published_mosaics`,
        `read_mosaics` alone.
    method: as `attribute` takes it: a name, a class of captum.attr, a function of (model, images, targets).
    predictions: (N,) the model's classes of the single images, if they are known: the result then says how many are
        right, of all and of those in the mosaics.

    >>> import scs_eval
    >>> data, few = scs_eval.load_data("sample", n=60), scs_eval.MosaicOptions(side=2, count=3)
    >>> model = scs_eval.load_model("rohrer25k_scs")
    >>> mosaics = scs_eval.select_mosaics({"scs": model}, data, few)["scs"]
    >>> scs_eval.localisation(model, data, mosaics).scores.shape
    (3, 4)
    """
    from torch import inference_mode

    from scs_eval.analyses.attribution.own_methods import method_name
    from scs_eval.analyses.core.inputs import as_labels, as_model
    from scs_eval.analyses.core.validation import check_one_per_image, check_request
    from scs_eval.analyses.localisation.mosaics import Mosaics
    from scs_eval.analyses.localisation.runner import LocalisationRun, as_image_set

    check_request(label=label, seed=seed)
    name, chosen, network = method_name(method), options or LocalisationOptions(), as_model(model)
    given = mosaics if isinstance(mosaics, Mosaics) else None
    data = as_image_set(network, data, labels=mosaics if given is None else None)
    if predictions is not None:
        predictions = as_labels(predictions, what="predictions")
        check_one_per_image(predictions, len(data.labels), what="predictions")
    mosaics = given or select_mosaics({label: network}, data, MosaicOptions(protocol=chosen.protocol), seed=seed)[label]
    with inference_mode(False):  # which leaves no graph
        run = LocalisationRun.prepare(network, data, mosaics, chosen, method=name, label=label, seed=seed)
        return run.result(predictions)


def select_mosaics(
    models: "Mapping[str, nn.Module | str]",
    data: "ImagesLike | Mapping[str, ImagesLike]",
    options: MosaicOptions | None = None,
    *,
    seed: int = 0,
) -> "dict[str, Mosaics]":
    """The mosaics of each model: the same for all, of images that every one has right; replayed; or each its own.

    data: for all models, or for each its own (as where their input sizes differ).

    >>> import scs_eval
    >>> models, data = {"scs": scs_eval.load_model("rohrer25k_scs")}, scs_eval.load_data("sample", n=60)
    >>> mosaics = scs_eval.select_mosaics(models, data, scs_eval.MosaicOptions(side=2, count=3))
    >>> mosaics["scs"].indices.shape
    (3, 4)
    """
    from scs_eval.analyses.core.inputs import as_model
    from scs_eval.analyses.localisation.choice import mosaics_of
    from scs_eval.analyses.localisation.runner import as_image_set, image_logits

    networks = {name: as_model(model) for name, model in models.items()}
    of_model = {
        name: as_image_set(model, data[name] if isinstance(data, Mapping) else data) for name, model in networks.items()
    }
    logits = {
        name: image_logits(model, of_model[name].images, classes=len(of_model[name].classes))
        for name, model in networks.items()
    }
    return mosaics_of(logits, of_model, options or MosaicOptions(), seed=seed)
