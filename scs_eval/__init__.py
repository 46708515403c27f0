"""What an image classifier looks at and how easily it breaks.

Names are imported when first used, so `import scs_eval` does not import torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from scs_eval.analyses.catalogue import exports

if TYPE_CHECKING:
    from scs_eval.analyses.accuracy import accuracy as accuracy
    from scs_eval.analyses.attacks.config import Attack as Attack
    from scs_eval.analyses.attacks.kinds import AttackKind as AttackKind
    from scs_eval.analyses.attacks.own_attacks import register_attack as register_attack
    from scs_eval.analyses.attribution.attribute import attribute as attribute
    from scs_eval.analyses.attribution.methods import Method as Method
    from scs_eval.analyses.attribution.metric_records import Metric as Metric
    from scs_eval.analyses.attribution.own_methods import register_method as register_method
    from scs_eval.analyses.attribution.own_metrics import register_metric as register_metric
    from scs_eval.analyses.attribution.quantus_metrics import explain_func as explain_func
    from scs_eval.analyses.calibration import calibration as calibration
    from scs_eval.analyses.catalogue import Analysis as Analysis
    from scs_eval.analyses.catalogue import Headline as Headline
    from scs_eval.analyses.catalogue import register_analysis as register_analysis
    from scs_eval.analyses.certify import certify as certify
    from scs_eval.analyses.compare import compare as compare
    from scs_eval.analyses.contributions import contributions as contributions
    from scs_eval.analyses.contributions.neurons import neurons as neurons
    from scs_eval.analyses.core.page import page as page
    from scs_eval.analyses.core.result import Comparison as Comparison
    from scs_eval.analyses.core.result import Result as Result
    from scs_eval.analyses.core.result import load_result as load_result
    from scs_eval.analyses.core.result import side_by_side as side_by_side
    from scs_eval.analyses.corruptions import corruptions as corruptions
    from scs_eval.analyses.detect import detect as detect
    from scs_eval.analyses.dynamics import dynamics as dynamics
    from scs_eval.analyses.faithfulness import FaithfulnessOptions as FaithfulnessOptions
    from scs_eval.analyses.faithfulness import faithfulness as faithfulness
    from scs_eval.analyses.localisation import LocalisationOptions as LocalisationOptions
    from scs_eval.analyses.localisation import MosaicOptions as MosaicOptions
    from scs_eval.analyses.localisation import localisation as localisation
    from scs_eval.analyses.localisation import select_mosaics as select_mosaics
    from scs_eval.analyses.localisation.choice import choose_grids as choose_grids
    from scs_eval.analyses.pgd import PgdOptions as PgdOptions
    from scs_eval.analyses.pgd import pgd as pgd
    from scs_eval.analyses.saliency import SaliencyOptions as SaliencyOptions
    from scs_eval.analyses.saliency import saliency as saliency
    from scs_eval.analyses.scorecard import scorecard as scorecard
    from scs_eval.analyses.study import study as study
    from scs_eval.data import ImageData as ImageData
    from scs_eval.data import load_data as load_data
    from scs_eval.data.own import register_data as register_data
    from scs_eval.errors import InputError as InputError
    from scs_eval.explorer import explore as explore
    from scs_eval.models.conversion.convert import convert as convert
    from scs_eval.models.explain.dynamic_linear import explanation_mode as explanation_mode
    from scs_eval.models.loading.load import load_model as load_model
    from scs_eval.models.zoo.registry import create_model as create_model
    from scs_eval.models.zoo.registry import list_models as list_models
    from scs_eval.models.zoo.registry import register_model as register_model
    from scs_eval.plugins import load_plugin as load_plugin
    from scs_eval.report.comparison import write_comparison as write_comparison
    from scs_eval.report.write import write_result as write_result

__version__ = "0.1.0"

_HOME = {
    "Analysis": "scs_eval.analyses.catalogue",
    "Attack": "scs_eval.analyses.attacks.config",
    "AttackKind": "scs_eval.analyses.attacks.kinds",
    "FaithfulnessOptions": "scs_eval.analyses.faithfulness",
    "Headline": "scs_eval.analyses.catalogue",
    "ImageData": "scs_eval.data",
    "InputError": "scs_eval.errors",
    "LocalisationOptions": "scs_eval.analyses.localisation",
    "MosaicOptions": "scs_eval.analyses.localisation",
    "Method": "scs_eval.analyses.attribution.methods",
    "Metric": "scs_eval.analyses.attribution.metric_records",
    "Comparison": "scs_eval.analyses.core.result",
    "PgdOptions": "scs_eval.analyses.pgd",
    "Result": "scs_eval.analyses.core.result",
    "SaliencyOptions": "scs_eval.analyses.saliency",
    "attribute": "scs_eval.analyses.attribution.attribute",
    "choose_grids": "scs_eval.analyses.localisation.choice",
    "convert": "scs_eval.models.conversion.convert",
    "create_model": "scs_eval.models.zoo.registry",
    "explanation_mode": "scs_eval.models.explain.dynamic_linear",
    "explain_func": "scs_eval.analyses.attribution.quantus_metrics",
    "explore": "scs_eval.explorer",
    "list_models": "scs_eval.models.zoo.registry",
    "load_data": "scs_eval.data",
    "load_model": "scs_eval.models.loading.load",
    "load_result": "scs_eval.analyses.core.result",
    "load_plugin": "scs_eval.plugins",
    "page": "scs_eval.analyses.core.page",
    "register_analysis": "scs_eval.analyses.catalogue",
    "register_attack": "scs_eval.analyses.attacks.own_attacks",
    "register_data": "scs_eval.data.own",
    "register_method": "scs_eval.analyses.attribution.own_methods",
    "register_metric": "scs_eval.analyses.attribution.own_metrics",
    "register_model": "scs_eval.models.zoo.registry",
    "select_mosaics": "scs_eval.analyses.localisation",
    "side_by_side": "scs_eval.analyses.core.result",
    "write_comparison": "scs_eval.report.comparison",
    "write_result": "scs_eval.report.write",
}

__all__ = [*_HOME, *exports(installed=False), "__version__"]


def __getattr__(name: str) -> Any:
    home = _HOME.get(name) or exports(installed=False).get(name)
    if home is None and not name.startswith("_"):
        home = exports().get(name)
    if home is None:
        raise AttributeError(f"module 'scs_eval' has no attribute {name!r}")
    value = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*__all__, *exports()})
