"""The analyses: one entry each. Commands, `compare`, the page, result kinds and `scs_eval`'s exports derive from it.

Nothing here imports torch: entries name functions as "module:function", imported when they are called.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any, Literal, TypeVar, overload

from scs_eval.errors import InputError
from scs_eval.plugins import Registry

HIGHER, LOWER, NEITHER = 1, -1, 0
SHARE, SIGNED_SHARE = (0.0, 1.0), (-1.0, 1.0)  # bounds
# What an analysis depends on besides the model, its images and the seed.
Need = Literal["labels", "gradient", "method", "metrics", "attacks", "eps", "shown eps", "grids", "twin", "facts"]
# What `size` counts: images, grids of the pointing game, or the images in those grids.
Unit = Literal["image", "grid", "cell"]
# What is made once for all models of a comparison, by `function(tasks, count=…)`.
SHARED = {"grids": "scs_eval.analyses.localisation.task:shared_mosaics"}


@dataclass(frozen=True)
class Headline:
    """A number that models are compared by.

    name: what a gate calls it. words: what it is. better: HIGHER, LOWER, or NEITHER where a difference is all there is
    to say. values: from a result to the value of every example; with `at_eps`, from a result and a position in its
    `eps`. shares: an example is right or wrong (Wilson's interval, McNemar's test), else it has a number (bootstrap).
    at_eps: one such number for every ε of the sweep, or for those that the summary shows; called pgd@8/255.
    words_of_difference: what a model is that has less, and one that has more of it than its reference.
    unit: what its examples are, if not what the analysis counts.
    formula, source, fails: what is computed, whose it is, and where it misleads; the site's catalogue shows them.
    bounds: between which the values can lie, and so the interval of their mean.

    >>> import scs_eval
    >>> scs_eval.Headline("sureness", "largest probability", lambda result: result.largest, better=1).unit is None
    True
    """

    name: str
    words: str
    values: Callable[..., Any]
    better: int = NEITHER
    shares: bool = False
    at_eps: Literal["", "all", "shown"] = ""
    words_of_difference: tuple[str, str] = ("lower", "higher")
    unit: Unit | None = None
    formula: str = ""
    source: str = ""
    fails: str = ""
    bounds: tuple[float | None, float | None] = (None, None)


@dataclass(frozen=True)
class Analysis:
    """An analysis, as everything that lists analyses sees it.

    name: the command, the room, the folder below results/, and the kind of its results.
    title: on the page. question: what it asks. command: its line in `scs-eval --help`; without one it is no command.
    home: its module. function: what `scs_eval` exports from there. kinds: the module whose import defines its results,
    if that is not its home.
    run: from a `Task` to a result, or where that function is, "module:function": how `compare` and a command without a
    file of its own run it.
    size, unit: how many of what `compare` takes. cost: of one of those, in forward passes of an image.
    needs: see `Need`. options: what a study's plan may choose about it. metrics: its headlines.
    curve: what its figure tells, if it stands among the page's curves. pictures: its figure shows pictures, not lines.
    row_per_image: its summary has one, and so is not on the page.

    >>> import scs_eval
    >>> entry = scs_eval.Analysis("sureness", "Sureness", "How sure is it?", run="my_package.sureness:run")
    >>> entry.module
    'scs_eval.analyses.sureness'
    """

    name: str
    title: str
    question: str
    size: int | None = None
    unit: Unit = "image"
    cost: float = 1
    command: str = ""
    home: str = ""
    kinds: str = ""
    function: str = ""
    run: "str | Callable[..., Any]" = ""
    needs: tuple[Need, ...] = ()
    options: tuple[str, ...] = ()
    metrics: tuple[Headline, ...] = ()
    curve: str = ""
    pictures: bool = False
    row_per_image: bool = False

    @property
    def module(self) -> str:
        """Where its function is defined."""
        return self.home or f"scs_eval.analyses.{self.name}"

    @property
    def kinds_module(self) -> str:
        """Where its results are defined."""
        return self.kinds or self.module


def imported(dotted: "str | Callable[..., Any]") -> Any:
    """What "module:name" stands for; a function stands for itself."""
    if not isinstance(dotted, str):
        return dotted
    module, _, name = dotted.partition(":")
    return getattr(import_module(module), name)


Run = TypeVar("Run", bound=Callable[..., Any])
ENTRIES: Registry[Analysis] = Registry(
    "an analysis", group="scs_eval.analyses", register=f"{__name__}:register_analysis"
)


@overload
def register_analysis(entry: Analysis, *, name: str = ...) -> Analysis: ...
@overload
def register_analysis(*, name: str, **fields: Any) -> Callable[[Run], Run]: ...
def register_analysis(entry: Any = None, *, name: str = "", **fields: Any) -> Any:
    """Add an analysis: from now on it is a command, a part of `compare` and of the page, and a name in `scs_eval`.

    entry: an `Analysis`. Without one, the fields of one, above the function that runs it: from a `Task` to a result.
    name: if not the entry's own. examples/analysis.py is a whole one.

    >>> import scs_eval
    >>> @scs_eval.register_analysis(name="nothing", question="Is there nothing to see?")
    ... def nothing(task):
    ...     raise NotImplementedError
    >>> from scs_eval.analyses.catalogue import ENTRIES
    >>> ENTRIES["nothing"].title
    'Nothing'
    """
    if entry is None:
        return lambda run: _registered(run, name=name, **fields)
    entry = replace(entry, name=name) if name else entry
    if not entry.name.isidentifier():
        raise InputError(f"expected a name such as my_analysis, got {entry.name!r}")
    return ENTRIES.add(entry.name, entry, origin=entry.run)


def _registered(run: Run, *, name: str, **fields: Any) -> Run:
    """An analysis whose module is that of the function which runs it."""
    known = {"title": name.replace("_", " ").capitalize(), "home": run.__module__, "question": f"What is {name}?"}
    try:
        register_analysis(Analysis(name=name, run=run, **{**known, **fields}))
    except TypeError as error:
        raise InputError(f"an analysis is not described so: {error}") from error
    return run


def compared() -> dict[str, Analysis]:
    """The analyses that `compare` runs, the cheap ones first as they stand here."""
    return {name: entry for name, entry in ENTRIES.items() if entry.run}


def exports(*, installed: bool = True) -> dict[str, str]:
    """Public functions and the modules they are in; installed: also of analyses that installed packages offer."""
    entries = ENTRIES if installed else ENTRIES.known()
    return {entry.function: entry.module for entry in entries.values() if entry.function}


ROOMS = "scs_eval.analyses"
for _entry in (
    Analysis(
        "accuracy", "Accuracy", "How often is the model right?",
        command="Measure how often each model is right, beside the paper.", function="accuracy",
        run=f"{ROOMS}.accuracy.task:run", size=1000, needs=("labels", "facts"),
        metrics=(
            Headline(
                "accuracy", "right answers", lambda result: result.correct, HIGHER, shares=True,
                formula="share of images whose largest logit is their label's", source="counting; Wilson 1927",
                fails="says nothing of how sure the answers are, nor of images of another kind",
            ),
        ),
        curve="Right answers on clean images.",
    ),
    Analysis(
        "calibration", "Calibration", "Is the model right as often as it says?",
        command="Measure whether each model is right as often as it says.", function="calibration",
        run=f"{ROOMS}.calibration.task:run", size=1000, needs=("labels",),
        metrics=(
            Headline(
                "brier", "Brier score", lambda result: result.brier[0], LOWER, formula="Σ (p − y)² over the classes",
                source="Brier 1950", fails="mixes calibration with accuracy: a better classifier has less of it",
            ),
            Headline(
                "log_loss", "log loss", lambda result: result.log_loss[0], LOWER, formula="−log p of the right class",
                source="Good 1952", fails="one answer that is sure and wrong outweighs many images",
            ),
        ),
        curve="Accuracy against confidence: on the diagonal, a model is right as often as it says.",
    ),
    Analysis(
        "saliency", "Saliency", "What does the model look at, and how sparse, specific and steady is that?",
        command="Show what each model looks at, and how sparse, specific and steady that is.", function="saliency",
        kinds=f"{ROOMS}.saliency.result", run=f"{ROOMS}.saliency.task:run", size=100, cost=22,
        needs=("gradient",), options=("samples",), pictures=True,
        metrics=(
            Headline(
                "sparseness", "sparseness of saliency maps (Gini)", lambda result: result.gini,
                words_of_difference=("less sparse", "sparser"), formula="Gini index of |map|", bounds=SHARE,
                source="Chalasani et al. 2020", fails="a sparse map may be wrong; untrained networks differ in it",
            ),
            Headline(
                "class_correlation", "correlation of the maps of two classes",
                lambda result: result.class_correlation, LOWER, bounds=SIGNED_SHARE,
                formula="Pearson correlation of the maps of the likeliest and of the least likely class",
                source="Rebuffi et al. 2020 (class sensitivity)",
                fails="1 for every method that does not look at the class",
            ),
            Headline(
                "max_sensitivity", "change of maps under small noise", lambda result: result.max_sensitivity, LOWER,
                bounds=(0, None),
                formula="largest ‖map(x + δ) − map(x)‖ / ‖map(x)‖ of random δ", source="Yeh et al. 2019",
                fails="a lower bound, as δ is drawn and not searched; a map that never changes is best",
            ),
        ),
    ),
    Analysis(
        "contributions", "Contributions", "What does each pixel add to the logit, and what is left over?",
        command="Show what each pixel adds to the logit, and how complete that is.", function="contributions",
        run=f"{ROOMS}.contributions.task:run", size=48, cost=14, needs=("gradient",), pictures=True,
        options=("extras", "layer", "directions"),
        metrics=(
            Headline(
                "complete", "maps that account for the logit", lambda result: result.complete, HIGHER, shares=True,
                formula="|logit − Σ W(x)⊙x − biases| within a thousandth of the logit",
                source="Böhle et al. 2024 (B-cos v2)", fails="a logit that is all bias passes, too: see bias_share",
            ),
            Headline(
                "bias_share", "share of biases in what makes the logit", lambda result: result.bias_share, LOWER,
                bounds=SHARE,
                formula="|bias| / (Σ |W(x)⊙x| + |bias|)", source="this package",
                fails="biases of opposite signs cancel before they are counted (`--audit` has each layer's)",
            ),
        ),
        row_per_image=True,
    ),
    Analysis(
        "neurons", "Neurons", "What activates a neuron, or a direction of a layer?", function="neurons",
        home=f"{ROOMS}.contributions.neurons",
    ),
    Analysis(
        "localisation", "Localisation", "Does the map of a class lie on that class's image in a grid of several?",
        command="Play the grid pointing game: does the map of a class lie on its image?", function="localisation",
        kinds=f"{ROOMS}.localisation.result", run=f"{ROOMS}.localisation.task:run", size=16, unit="grid", cost=190,
        needs=("labels", "gradient", "method", "grids"), options=("top", "square", "channels", "smooth"),
        metrics=(
            Headline(
                "localisation", "attribution in the right cell", lambda result: result.grid_scores, HIGHER,
                bounds=SHARE, formula="positive part of a class's map in its own cell / in the whole grid",
                source="Böhle et al. 2021 (CoDA-Nets)",
                fails="networks never saw grids; what speaks against is not counted",
            ),
        ),
    ),
    Analysis(
        "pgd", "Robustness", "How large a change of the image fools the model, and is that robustness real?",
        command="Attack each model with ever larger changes, and check whether its robustness is real.", function="pgd",
        kinds=f"{ROOMS}.pgd.result", run=f"{ROOMS}.pgd.task:run", size=200, cost=260,
        needs=("labels", "gradient", "attacks", "eps", "twin"), options=("scorecard",),
        metrics=(
            Headline(
                "robust_area", "area under accuracy against ε", lambda result: result.areas, HIGHER, bounds=SHARE,
                words_of_difference=("less robust", "more robust"),
                formula="share of [0, largest ε] over which the model stays right", source="this package",
                fails="an upper bound, as a better attack may come; depends on the largest ε",
            ),
            Headline(
                "pgd", "right answers when attacked", lambda result, eps: ~result.is_adversarial[eps], HIGHER,
                shares=True, at_eps="all", formula="share of images right at all that was tried within ε",
                source="Madry et al. 2018", fails="an upper bound, as a better attack may come: read the scorecard",
            ),
        ),
        curve="Accuracy as attacks grow: the smallest ε that fools the model was searched for every image.",
    ),
    Analysis(
        "scorecard", "Scorecard", "Are there reasons to doubt a curve of accuracy against ε?", function="scorecard"
    ),
    Analysis(
        "corruptions", "Corruptions", "How much do noise, blur, weather and compression hurt?",
        command="Show each model images under 15 common corruptions in 5 severities.", function="corruptions",
        run=f"{ROOMS}.corruptions.task:run", size=100, cost=300, needs=("labels", "facts"),
        metrics=(
            Headline(
                "corrupted", "right answers under common corruptions", lambda result: result.per_image, HIGHER,
                bounds=SHARE,
                formula="share of corruptions and severities at which the image is still right",
                source="Hendrycks and Dietterich 2019",
                fails="favours networks that were trained with like noise; drawn here, not the published files",
            ),
        ),
        curve="Accuracy as corruptions of fifteen kinds grow; severity 0 is the clean image.",
    ),
    Analysis(
        "detect", "Detection", "Are adversarial images, and images of another kind, told from clean ones?",
        command="Measure whether adversarial and foreign images are noticed.", function="detect",
        kinds=f"{ROOMS}.detect.result", run=f"{ROOMS}.detect.task:run",
        size=400, cost=120, needs=("labels", "gradient", "shown eps"),
        metrics=(
            Headline(
                "detected", "adversarial images told from clean ones (AUROC, Mahalanobis)",
                lambda result, eps: result.detectability(eps), HIGHER, at_eps="shown", bounds=SHARE,
                formula="share of clean images that score higher than an adversarial one", source="Lee et al. 2018",
                fails="attacks that know the detector are not tried; needs images to fit Gaussians to",
            ),
        ),
        curve="Clean images that are let through, against adversarial and foreign ones that are.",
    ),
    Analysis(
        "certify", "Certificates", "How far can an image be changed, at least and at most, before the answer changes?",
        command="Prove radii by randomised smoothing, and attack what was proven.", function="certify",
        kinds=f"{ROOMS}.certify.result", run=f"{ROOMS}.certify.task:run",
        size=20, cost=6000, needs=("labels", "gradient"),
        metrics=(
            Headline(
                "certified_radius", "certified L2 radius of the smoothed model", lambda result: result.proven[0],
                HIGHER, bounds=(0, None),
                formula="σ Φ⁻¹(lower bound of the top class's share); 0 where wrong or abstaining",
                source="Cohen et al. 2019", fails="of the smoothed model, not of the model; few samples prove little",
            ),
        ),
        curve="Of smoothed models: solid, accuracy that is proven; dashed, what no attack broke. Truth lies between.",
    ),
    Analysis(
        "attacked", "Explanations under attack",
        "Do maps still lie on the object, and look as before, when the image is attacked?",
        home=f"{ROOMS}.compare.attacked", run=f"{ROOMS}.compare.attacked.task:run", unit="cell", cost=260,
        needs=("labels", "gradient", "method", "shown eps", "grids"),
        metrics=(
            Headline(
                "localisation", "attribution in the right cell when attacked",
                lambda result, eps: result.localisation[eps], HIGHER, at_eps="shown", unit="grid", bounds=SHARE,
                formula="the grid pointing score of attacked cells", source="this package, after Böhle et al. 2021",
                fails="as localisation; the attack is on the answer, not on the map",
            ),
            Headline(
                "similarity", "likeness of attacked and clean maps", lambda result, eps: result.similarity[eps], HIGHER,
                at_eps="shown", bounds=SIGNED_SHARE, formula="Spearman correlation of the maps before and after",
                source="Ghorbani et al. 2019",
                fails="coarse maps are alike whatever happens; the attack is on the answer, not on the map",
            ),
        ),
        curve="Robustness and interpretability together: do maps still point at the object, and look as before, when "
        "the image is attacked? Each model is attacked for itself, at the full ε.",
    ),
    Analysis(
        "faithfulness", "Faithfulness", "Do the maps say what the model does?",
        command="Test whether maps say what the model does, against a random and an edge map.", function="faithfulness",
        kinds=f"{ROOMS}.faithfulness.result", run=f"{ROOMS}.faithfulness.task:run", size=24, cost=330,
        needs=("gradient", "method", "metrics"),
        metrics=tuple(  # of the first method; the others are controls
            Headline(name, words, lambda result, name=name: result.scores[name][0], better, bounds=SHARE)
            for name, words, better in (
                ("deletion", "deletion: area as important pixels go", LOWER),
                ("insertion", "insertion: area as important pixels come", HIGHER),
                ("infidelity", "change of the logit that maps miss", LOWER),
            )
        ),
    ),
    Analysis(
        "compare", "Comparison", "Which of these models is better, in what, and is that more than chance?",
        command="Compare any models on the same images: tests, curves, explanations, one page.", function="compare",
    ),
    Analysis(
        "study", "Study", "What do layers do, over trainings and architectures, and what of a paper's claims holds?",
        command="Run a plan: many networks, claims with their evidence, a paper's tables and figures.",
        function="study", kinds=f"{ROOMS}.study.result",
    ),
    Analysis(
        "search", "Search", "Which exponent p, and which learning rate, train best?",
        command="Search for p (and the learning rate) of a sharpened network by short trainings.",
        home="scs_eval.search", kinds="scs_eval.search.result",
    ),
    Analysis(
        "dynamics", "Training dynamics", "How did training go?",
        command="Draw the records of training runs.", function="dynamics",
    ),
    Analysis(
        "bench", "Speed and memory", "How fast is it, and how much memory does it take, against peers?",
        command="Measure speed and memory against peers.", home="scs_eval.benchmarks.result",
    ),
):  # fmt: skip
    register_analysis(_entry)
ENTRIES.close()
