"""The metrics of maps: one record each, from which tables, verdicts and `scs-eval metrics` derive. No torch here."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from scs_eval.plugins import Registry

HIGHER, LOWER, NEITHER = 1, -1, 0
QUANTUS = "quantus:"
Family = Literal["first", "further", "own"]
WORDS = {LOWER: ("better", "no better", "worse"), HIGHER: ("worse", "no better", "better")}
Need = Literal["explanations of other images or networks"]
MetricFunction = Callable[..., Any]  # (model, images, targets, maps) -> (n,); see `register_metric`


@dataclass(frozen=True, kw_only=True)
class Metric:
    """A number for each image's map.

    head: what the summary calls it, in braces a setting. formula: what is measured. source: the paper.
    better: HIGHER, LOWER, or NEITHER where a difference to the random map is all there is to say.
    words: what being below, at or above the random map means, where that is neither better nor worse.
    fails: where it misleads.
    cost: forward passes for an image of 32×32, with the settings by default. needs: see `Need`.
    family: metrics of one family are tested together (Holm). function: of a metric from outside.
    bounds: between which the values can lie, and so the interval of their mean.

    >>> import scs_eval
    >>> metric = scs_eval.Metric(
    ...     name="peak", head="peak ↓", formula="largest |value|", source="an example", better=-1,
    ...     function=lambda model, images, targets, maps: maps.abs().flatten(1).amax(1),
    ... )
    >>> scs_eval.register_metric(metric).direction
    'lower is better'
    """

    name: str
    head: str
    formula: str
    source: str
    better: int = NEITHER
    fails: str = ""
    words: tuple[str, str, str] = ("lower", "no different", "higher")
    cost: int = 0
    needs: tuple[Need, ...] = ()
    family: Family = "own"
    function: MetricFunction | None = None
    bounds: tuple[float | None, float | None] = (None, None)

    @property
    def verdicts(self) -> tuple[str, str, str]:
        """What being below, at or above the random map means."""
        return WORDS.get(self.better, self.words)

    @property
    def direction(self) -> str:
        """Which way is better, in words."""
        return {HIGHER: "higher is better", LOWER: "lower is better"}.get(self.better, "neither is better")


_FORGETS = ("unlike the original", "forgets with the model", "keeps some of the original")
_CASCADE: Any = {
    "source": "Adebayo et al. 2018", "words": _FORGETS, "family": "first",
    "fails": "the image alone makes maps alike: compare with the edge map, and read no score by itself",
    "needs": ("explanations of other images or networks",), "bounds": (-1, 1),
}  # fmt: skip
_SIMPLE: Any = {"family": "further"}
METRICS: Registry[Metric] = Registry(
    "a metric", group="scs_eval.metrics", register="scs_eval.analyses.attribution.own_metrics:register_metric"
)
for _metric in (
    Metric(
        name="deletion", head="deletion ({baseline}) ↓", source="Petsiuk et al. 2018", better=LOWER, cost=33,
        formula="area under P(class) as pixels go, the most important first", family="first", bounds=(0, 1),
        fails="images without their pixels are like none that were trained on: any hole may do harm",
    ),
    Metric(
        name="insertion", head="insertion ({baseline}) ↑", source="Petsiuk et al. 2018", better=HIGHER, cost=33,
        formula="area under P(class) as pixels come, the most important first", family="first", bounds=(0, 1),
        fails="an edge map, which knows no model, can do well; depends on what stands for a missing pixel",
    ),
    Metric(
        name="infidelity", head="infidelity (σ {infidelity_sigma:g}) ↓", source="Yeh et al. 2019", better=LOWER,
        cost=51, formula="min over β of E[(β·Σ map·change − fall)²] / E[fall²]: share of the fall left unexplained",
        family="first", bounds=(0, 1), fails="about noise of one size; says nothing of larger changes",
    ),
    Metric(
        name="spearman_absolute", head="random net: Spearman |map|",
        formula="rank correlation of |map| with that of the network whose layers are all re-initialised", **_CASCADE,
    ),
    Metric(
        name="spearman_signed", head="random net: Spearman",
        formula="rank correlation of the signed map with that of the re-initialised network", **_CASCADE,
    ),
    Metric(
        name="ssim", head="random net: SSIM",
        formula="structural similarity of |map| to that of the re-initialised network", **_CASCADE,
    ),
    Metric(
        name="road", bounds=(0, 1), head="ROAD ↓", source="Rong et al. 2022", better=LOWER, cost=7,
        formula="share of steps at which the class is still recognised once its first pixels are imputed", **_SIMPLE,
        fails="imputed pixels keep the blurred object: coarse maps are favoured",
    ),
    Metric(
        name="saco", bounds=(-1, 1), head="SaCo ↑", source="Wu et al. 2024", better=HIGHER, cost=11,
        formula="Σ ±(s_i − s_j) / Σ |s_i − s_j| over pairs of groups of pixels, + where salience and effect agree",
        **_SIMPLE, fails="groups of pixels hide what differs within them",
    ),
    Metric(
        name="monotonicity", bounds=(0, 1), head="monotone steps ↑", source="Arya et al. 2019", better=HIGHER, cost=33,
        formula="share of steps at which P(class) does not fall as pixels come, the least important first", **_SIMPLE,
        fails="most steps add even pixels, where noise decides; no step's size counts",
    ),
    Metric(
        name="emprt", bounds=(-1, None), head="eMPRT ↑", source="Hedström et al. 2023", better=HIGHER,
        formula="(Ĥ − H) / H, the entropy of the map's histogram, with Ĥ of the network whose layers are all "
        "re-initialised", needs=("explanations of other images or networks",),
        fails="of one random network; its histogram does not see where values lie, and one extreme empties its bins",
        **_SIMPLE,
    ),
    Metric(
        name="sparseness", bounds=(0, 1), head="sparseness (Gini)", source="Chalasani et al. 2020", **_SIMPLE,
        formula="Gini index of |map|", words=("less sparse", "as sparse", "sparser"),
        fails="a random map can be sparse: it says nothing of the model",
    ),
    Metric(
        name="complexity", bounds=(0, None), head="complexity (entropy, nats)", source="Bhatt et al. 2020", **_SIMPLE,
        formula="−Σ p log p of |map| / Σ |map|", words=("simpler", "as complex", "more complex"),
        fails="a map of one wrong pixel is the simplest: it says nothing of the model",
    ),
):  # fmt: skip
    METRICS.add(_metric.name, _metric)
METRICS.close()
PASSED: dict[str, Metric] = {}  # functions that were passed where a name is accepted, by theirs


def family(name: Family) -> dict[str, Metric]:
    """The metrics that are tested together."""
    return {key: metric for key, metric in METRICS.known().items() if metric.family == name}


def find_metric(name: str) -> Metric:
    """The metric of that name, also `quantus:NAME`; an unknown one suggests the nearest."""
    if name in PASSED and name not in METRICS:
        return PASSED[name]
    if name.startswith(QUANTUS):
        from scs_eval.analyses.attribution.quantus_metrics import metric_named

        return metric_named(name.removeprefix(QUANTUS))
    return METRICS.find(name, also=", quantus:NAME")
