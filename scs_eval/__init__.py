"""What an image classifier looks at and how easily it breaks.

Names are imported when first used, so `import scs_eval` does not import torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from scs_eval.analyses.accuracy import accuracy as accuracy
    from scs_eval.analyses.attacks.settings import Attack as Attack
    from scs_eval.analyses.attribution import attribute as attribute
    from scs_eval.analyses.compare import compare as compare
    from scs_eval.analyses.contributions import contributions as contributions
    from scs_eval.analyses.dynamics import dynamics as dynamics
    from scs_eval.analyses.faithfulness import faithfulness as faithfulness
    from scs_eval.analyses.game_grids import choose_grids as choose_grids
    from scs_eval.analyses.localisation import localisation as localisation
    from scs_eval.analyses.neurons import neurons as neurons
    from scs_eval.analyses.pgd import pgd as pgd
    from scs_eval.analyses.result import load_result as load_result
    from scs_eval.analyses.result import side_by_side as side_by_side
    from scs_eval.analyses.saliency import saliency as saliency
    from scs_eval.analyses.scorecard import scorecard as scorecard
    from scs_eval.data import ImageData as ImageData
    from scs_eval.data import load_data as load_data
    from scs_eval.errors import InputError as InputError
    from scs_eval.explorer import explore as explore
    from scs_eval.models.checkpoints import load_model as load_model
    from scs_eval.models.convert import convert as convert
    from scs_eval.models.dynamic_linear import explanation_mode as explanation_mode
    from scs_eval.models.registry import create_model as create_model
    from scs_eval.models.registry import list_models as list_models

__version__ = "0.1.0"

_HOME = {
    "Attack": "scs_eval.analyses.attacks.settings",
    "ImageData": "scs_eval.data",
    "InputError": "scs_eval.errors",
    "accuracy": "scs_eval.analyses.accuracy",
    "attribute": "scs_eval.analyses.attribution",
    "choose_grids": "scs_eval.analyses.game_grids",
    "compare": "scs_eval.analyses.compare",
    "contributions": "scs_eval.analyses.contributions",
    "convert": "scs_eval.models.convert",
    "create_model": "scs_eval.models.registry",
    "dynamics": "scs_eval.analyses.dynamics",
    "explanation_mode": "scs_eval.models.dynamic_linear",
    "explore": "scs_eval.explorer",
    "faithfulness": "scs_eval.analyses.faithfulness",
    "list_models": "scs_eval.models.registry",
    "load_data": "scs_eval.data",
    "load_model": "scs_eval.models.checkpoints",
    "load_result": "scs_eval.analyses.result",
    "localisation": "scs_eval.analyses.localisation",
    "neurons": "scs_eval.analyses.neurons",
    "pgd": "scs_eval.analyses.pgd",
    "saliency": "scs_eval.analyses.saliency",
    "scorecard": "scs_eval.analyses.scorecard",
    "side_by_side": "scs_eval.analyses.result",
}

__all__ = [*_HOME, "__version__"]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'scs_eval' has no attribute {name!r}")
    value = getattr(import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
