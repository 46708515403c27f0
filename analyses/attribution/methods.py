"""The attribution methods: one record each, with all that the rest of the package has to know. No torch here.

Whoever treats methods differently (smoothing, captions, batch sizes, which metric applies) asks the record.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal

from scs_eval.plugins import Registry

if TYPE_CHECKING:
    from torch import Tensor, nn

Quantity = Literal["sensitivity", "contribution"]
Need = Literal["gradient", "convolution", "attention", "ReLU modules", "rule for every layer", "dynamic-linear network"]
Total = Literal["logit", "change from black", "change from references"]
Option = Literal["seed", "square", "published", "references"]
Function = Callable[["nn.Module", "Tensor", "Tensor", "MapOptions"], "Tensor"]

FEW_PASSES = 2  # forward passes of an image up to which a method is cheap


@dataclass(frozen=True, kw_only=True)
class MapOptions:
    """What a map depends on besides model, image and class; a method's record says which of these it reads.

    seed: of random choices, so that a map does not depend on the images beside it. square: side of occlusion's square
    in pixels. published: the arithmetic of the B-cos authors' code where it differs (Grad-CAM of what goes into a
    convolution that gives the classes). allow_incomplete: W(x)⊙x even if it and the biases are not the logit.
    references: images (R, 3, H, W) that expected gradients start from; by default even images of random colours.
    """

    seed: int = 0
    square: int | None = None
    published: bool = False
    allow_incomplete: bool = False
    references: "Tensor | None" = None


@dataclass(frozen=True, kw_only=True)
class Method:
    """An attribution method.

    function: maps (N, K, C, H, W) of K classes (N, K) of images (N, C, H, W); or where it is, as "module:name" below
        this package. The map of a single class is that with K = 1. rule: what it does with one layer's activation.
    label: what a caption calls it. source: the paper. measures: what a map says, in words. fails: where it misleads.
    empty: why a map may be 0 everywhere. own: from outside this package.
    passes: forward passes for an image of 32×32, each with a backward pass per class if the method needs a gradient.
    quantity: of a sensitivity the change of the logit is Σ map·δ, of a contribution x ⊙ something.
    resolution: a coarse map is made of few places and not smoothed again.
    class_specific: whether maps of two classes differ. on: what is explained.
    adds_up_to: what the map of an image adds up to, if it should: the logit (with biases) or its change.
    local: the map is 0 wherever the logit does not depend on the image. shares_passes: K classes cost one forward pass.
    image_by_image: images are not explained in batches. at_encoding: always of what enters the first layer, [x, 1−x].
    published: whether the maps of the B-cos authors' code are reproduced.

    >>> import scs_eval
    >>> method = scs_eval.Method(
    ...     name="brightness", label="brightness", source="an example", measures="the image itself", fails="always",
    ...     function=lambda model, images, targets, options: images[:, None].expand(-1, targets.shape[1], -1, -1, -1),
    ... )
    >>> data = scs_eval.load_data("sample", n=2)
    >>> maps = scs_eval.attribute("rohrer25k_scs", data.images, data.labels, method=method)
    >>> bool((maps == data.images).all())
    True
    """

    name: str
    label: str
    source: str
    function: Function | str
    rule: str | None = None
    measures: str
    fails: str
    empty: str = "the method finds nothing"
    passes: int = 1
    quantity: Quantity = "contribution"
    resolution: Literal["pixel", "coarse"] = "pixel"
    class_specific: bool = True
    on: Literal["logit", "probability"] = "logit"
    adds_up_to: Total | None = None
    needs: tuple[Need, ...] = ()
    reads: tuple[Option, ...] = ()
    local: bool = False
    shares_passes: bool = True
    image_by_image: bool = False
    at_encoding: bool = False
    published: bool = False
    own: bool = False

    @property
    def needs_gradient(self) -> bool:
        """Whether it can serve only a model that is differentiable."""
        return "gradient" in self.needs

    @property
    def cheap(self) -> bool:
        """Whether an image costs a few passes and not dozens."""
        return self.passes <= FEW_PASSES

    @property
    def cost(self) -> str:
        """What an image of 32×32 costs, in words."""
        backward = " + a backward pass per class" if self.needs_gradient else ""
        return f"{self.passes} forward{backward}" if self.passes == 1 else f"{self.passes} × (forward{backward})"

    @cached_property
    def maps(self) -> Function:
        """The function itself, imported when it is first asked for."""
        function: Function = _resolved(self.function)
        return function

    @cached_property
    def layer_rule(self) -> "Callable[[Tensor, Tensor], Tensor] | None":
        """Of a method at one layer: maps (N, K, h, w) of its activation (N, C, h, w) and gradients (N, K, C, h, w)."""
        return None if self.rule is None else _resolved(self.rule)


def _resolved(function: Any) -> Any:
    """A function, or the one that "module:name" of this package is."""
    if callable(function):
        return function
    module, _, name = function.partition(":")
    return getattr(import_module(f"{__package__}.{module}"), name)


_METHODS = (
    Method(
        name="grad",
        label="∂ logit / ∂ pixel",
        source="Simonyan et al. 2014",
        function="gradient:gradient",
        measures="how fast the logit rises with each value",
        fails="noisy where the gradient changes from pixel to pixel; says nothing of saturated evidence",
        empty="no change of the image changes the logit: units are dead or saturated",
        quantity="sensitivity",
        needs=("gradient",),
        local=True,
        published=True,
    ),
    Method(
        name="ixg",
        label="input × gradient",
        source="Shrikumar et al. 2016",
        function="gradient:input_times_gradient",
        measures="x ⊙ gradient: the logit's share of each value, to first order",
        fails="black pixels get nothing; near 0 on SCS networks, which hardly see the scale of x (see wx)",
        empty="no change of the image changes the logit: units are dead or saturated",
        needs=("gradient",),
        local=True,
        published=True,
    ),
    Method(
        name="intgrad",
        label="integrated gradients",
        source="Sundararajan et al. 2017",
        function="gradient:integrated_gradients",
        measures="the logit's change from black, shared among the values along the straight path",
        fails="depends on the baseline; black pixels get nothing; a sharp bend on the path is missed by 50 steps",
        empty="the logit is the same everywhere between black and the image",
        passes=50,
        adds_up_to="change from black",
        needs=("gradient",),
        local=True,
        published=True,
    ),
    Method(
        name="expgrad",
        label="expected gradients",
        source="Erion et al. 2021",
        function="gradient:expected_gradients",
        measures="the logit's change from references, shared among the values; by default even images of any colour",
        fails="50 draws leave noise; depends on the references, though on none alone",
        empty="the logit is the same everywhere between the references and the image",
        passes=50,
        adds_up_to="change from references",
        needs=("gradient",),
        reads=("seed", "references"),
        local=True,
    ),
    Method(
        name="smoothgrad",
        label="SmoothGrad",
        source="Smilkov et al. 2017",
        function="gradient:smoothgrad",
        measures="the mean gradient around the image (25 copies with noise of 0.15)",
        fails="explains noisy images, on which the network may say something else",
        empty="no change of the image changes the logit: units are dead or saturated",
        passes=25,
        quantity="sensitivity",
        needs=("gradient",),
        reads=("seed",),
        local=True,
    ),
    Method(
        name="guided-backprop",
        label="guided backpropagation",
        source="Springenberg et al. 2015",
        function="propagation:guided_backprop",
        measures="the gradient, its negative parts cut at every ReLU",
        fails="hardly changes with the class or the weights: an edge detector (Adebayo et al. 2018)",
        empty="no path of positive gradients leads from the logit to the image",
        quantity="sensitivity",
        needs=("gradient", "ReLU modules"),
        local=True,
        shares_passes=False,
    ),
    Method(
        name="deeplift",
        label="DeepLIFT",
        source="Shrikumar et al. 2017",
        function="propagation:deeplift",
        measures="the logit's change from black, layer by layer by the rescale rule",
        fails="depends on the baseline; refused where a layer has no rule (SCS, B-cos, reused modules)",
        empty="the logit is the same everywhere between black and the image",
        passes=2,
        adds_up_to="change from black",
        needs=("gradient", "rule for every layer"),
        local=True,
        shares_passes=False,
    ),
    Method(
        name="gradcam",
        label="Grad-CAM",
        source="Selvaraju et al. 2017",
        function="cam:gradcam",
        rule="cam:gradcam_rule",
        measures="relu of the last feature map's channels, weighted by their mean gradient",
        fails="as coarse as the last feature map; empty where no channel speaks for the class",
        empty="no place of the last feature map speaks for the class: its weighted sum is nowhere positive",
        resolution="coarse",
        needs=("gradient", "convolution"),
        reads=("published",),
        published=True,
    ),
    Method(
        name="lime",
        label="LIME",
        source="Ribeiro et al. 2016",
        function="perturbation:lime",
        measures="weight of each superpixel in a local linear model of the probability",
        fails="unstable with few samples; superpixels may cut the object; mean colour hides little of even areas",
        empty="the probability does not change whatever is hidden: it is saturated",
        passes=500,
        on="probability",
        reads=("seed",),
        image_by_image=True,
    ),
    Method(
        name="occlusion",
        label="occlusion",
        source="Zeiler and Fergus 2014",
        function="perturbation:occlusion",
        measures="how far the logit falls when a black square hides a pixel",
        fails="depends on the square's size; black may be evidence itself; redundant evidence gets nothing",
        empty="no hidden square changes the logit",
        passes=226,
        reads=("square",),
        image_by_image=True,
    ),
    Method(
        name="rise",
        label="RISE",
        source="Petsiuk et al. 2018",
        function="perturbation:rise",
        measures="mean of random smooth masks, weighted by the probability they leave the class",
        fails="grainy with 1,000 masks; flat where the probability is saturated",
        empty="the probability does not change whatever is hidden: it is saturated",
        passes=1000,
        on="probability",
        reads=("seed",),
        image_by_image=True,
    ),
    Method(
        name="normgrad",
        label="NormGrad",
        source="Rebuffi et al. 2020",
        function="cam:normgrad",
        rule="cam:normgrad_rule",
        measures="‖activation‖·‖gradient‖ at each place of the last feature map",
        fails="never negative, so it cannot say what speaks against a class; as coarse as the last feature map",
        empty="the gradient at the last feature map is 0",
        resolution="coarse",
        needs=("gradient", "convolution"),
    ),
    Method(
        name="normgrad-combined",
        label="NormGrad combined",
        source="Rebuffi et al. 2020",
        function="normgrad:combined",
        measures="geometric mean of NormGrad at all convolutions: finer than at the last alone",
        fails="never negative; a layer whose gradient is 0 at a place empties it for all",
        empty="the gradient at some convolution is 0",
        passes=4,
        resolution="coarse",
        needs=("gradient", "convolution"),
    ),
    Method(
        name="normgrad-meta",
        label="NormGrad after a step",
        source="Rebuffi et al. 2020",
        function="normgrad:meta",
        measures="NormGrad once a step of training on this image and class is done: where it would learn the class",
        fails="hardly differs from NormGrad where the step is small beside the weights; never negative; coarse",
        empty="the gradient at the last feature map is 0",
        passes=2,
        resolution="coarse",
        needs=("gradient", "convolution"),
        shares_passes=False,
        image_by_image=True,
    ),
    Method(
        name="hirescam",
        label="HiResCAM",
        source="Draelos and Carin 2020",
        function="cam:hirescam",
        rule="cam:hirescam_rule",
        measures="activation × gradient at each place of the last feature map, summed over channels, with its sign",
        fails="as coarse as the last feature map; of the logit exactly where only a linear layer follows",
        empty="the gradient at the last feature map is 0",
        resolution="coarse",
        needs=("gradient", "convolution"),
    ),
    Method(
        name="wx",
        label="W(x)⊙x",
        source="Böhle et al. 2024 (B-cos v2, Eq. 16)",
        function="wx:dynamic_linear_contributions",
        measures="the logit as a sum over pixels, exactly, with the biases beside it",
        fails="needs a network that is y = W(x)x + b; a large bias is not in the map",
        empty="W(x) is 0: no unit that is active leads to the logit",
        adds_up_to="logit",
        needs=("gradient", "dynamic-linear network"),
        reads=(),
        local=True,
        at_encoding=True,
        published=True,
    ),
    Method(
        name="rollout",
        label="attention rollout",
        source="Abnar and Zuidema 2020",
        function="rollout:attention_rollout",
        measures="from which patches the last layer's tokens draw",
        fails="the same for every class; ignores values, MLPs and signs",
        empty="no attention reaches the image",
        resolution="coarse",
        class_specific=False,
        needs=("attention",),
    ),
    Method(
        name="gradrollout",
        label="gradient-weighted rollout",
        source="Chefer et al. 2021",
        function="rollout:gradient_rollout",
        measures="from which patches the head draws, by attention whose growth would raise the logit",
        fails="ignores values, MLPs and what speaks against the class; as coarse as the patches",
        empty="no attention whose growth raises the logit reaches the image",
        resolution="coarse",
        needs=("gradient", "attention"),
    ),
    Method(
        name="gradsam",
        label="Grad-SAM",
        source="Barkan et al. 2021",
        function="rollout:grad_sam",
        measures="attention that a patch gets in any layer, where its growth would raise the logit",
        fails="in deep layers tokens are no longer their patch; never negative; as coarse as the patches",
        empty="no attention whose growth raises the logit",
        resolution="coarse",
        needs=("gradient", "attention"),
    ),
    Method(
        name="attnlrp",
        label="AttnLRP",
        source="Achtibat et al. 2024",
        function="attnlrp:attnlrp",
        measures="the logit passed back layer by layer, through attention as through linear layers",
        fails="black pixels get nothing; biases take a share that no pixel shows",
        empty="no relevance reaches the image",
        adds_up_to="logit",
        needs=("gradient", "attention"),
    ),
)
METHODS: Registry[Method] = Registry(
    "a method", group="scs_eval.methods", register="scs_eval.analyses.attribution.own_methods:register_method"
)
for _method in _METHODS:
    METHODS.add(_method.name, _method)
METHODS.close()
PASSED: dict[str, Method] = {}  # functions that were passed where a name is accepted, by theirs
CAPTUM, AT_LAYER = "captum:", "normgrad:"


def find_method(name: str) -> Method:
    """The method of that name; an unknown one suggests the nearest.

    `captum:NAME` is a class of captum.attr, `normgrad:LAYER` is NormGrad at that module of the network.
    """
    if name in PASSED and name not in METHODS:
        return PASSED[name]
    if name.startswith(AT_LAYER):
        from scs_eval.analyses.attribution.normgrad import at_layer

        return PASSED.setdefault(name, at_layer(METHODS["normgrad"], name.removeprefix(AT_LAYER)))
    if name.startswith(CAPTUM):
        from scs_eval.analyses.attribution.captum_methods import method_named

        return PASSED.setdefault(name, method_named(name.removeprefix(CAPTUM)))
    return METHODS.find(name, also=", captum:NAME, normgrad:LAYER")


def known_method(name: str) -> Method | None:
    """The method of that name, if this process has heard of it: an older result may name another one."""
    return METHODS.get(name) or PASSED.get(name)


def caption(name: str) -> str:
    """What a figure calls a method; one that is not known here (of an older result) by its name."""
    record = known_method(name)
    return name if record is None or record.label == name else f"{record.label} ({name})"
