"""Classes of captum, torchattacks and foolbox by name: what they give is what the package itself gives."""

import inspect

import captum.attr
import foolbox
import pytest
import torch
import torch.nn.functional as F
from small_networks import convolutional
from torch import nn

import scs_eval
from scs_eval import Attack, InputError
from scs_eval.analyses.attacks.attack import attack
from scs_eval.analyses.attacks.own_attacks import as_attacks
from scs_eval.analyses.attacks.sweep import sweep
from scs_eval.analyses.attribution.captum_methods import REFUSED, squares

IMAGES = torch.rand(3, 3, 16, 16, generator=torch.Generator().manual_seed(5))
TARGETS = torch.tensor([0, 3, 2])
CLASSES = [
    name
    for name in captum.attr.__all__
    if inspect.isclass(kind := getattr(captum.attr, name))
    and issubclass(kind, captum.attr.Attribution)
    and callable(getattr(kind, "attribute", None))
]
SQUARE = {"sliding_window_shapes": (3, 3, 3), "strides": (3, 3, 3)}


@pytest.mark.parametrize(
    ("name", "arguments"),
    [("Saliency", {}), ("InputXGradient", {}), ("IntegratedGradients", {}), ("DeepLift", {}), ("Occlusion", SQUARE)],
)
def test_captum_gives_what_captum_gives(name, arguments):
    """A sixth of 16 pixels is 3. Copies of one network on one machine: the same numbers."""
    kind = getattr(captum.attr, name)
    theirs = kind(convolutional()).attribute(IMAGES.clone().requires_grad_(), target=TARGETS, **arguments)
    for asked in (f"captum:{name}", kind):
        ours = scs_eval.attribute(convolutional(), IMAGES, TARGETS, method=asked)
        torch.testing.assert_close(ours, theirs.detach())


def test_captum_at_a_layer():
    model = convolutional()
    theirs = captum.attr.LayerGradCam(model, model[2]).attribute(IMAGES, target=TARGETS)
    ours = scs_eval.attribute(model, IMAGES, TARGETS, method=captum.attr.LayerGradCam)
    wanted = F.interpolate(theirs.detach(), (16, 16), mode="bilinear", align_corners=False)
    torch.testing.assert_close(ours, wanted.expand(-1, 3, -1, -1))


@pytest.mark.parametrize("name", ["Lime", "KernelShap", "GradientShap"])
def test_random_maps_of_captum_depend_on_the_seed_alone(name):
    model = convolutional()
    whole = scs_eval.attribute(model, IMAGES, TARGETS, method=f"captum:{name}", seed=3)
    alone = scs_eval.attribute(model, IMAGES[1:2], TARGETS[1:2], method=f"captum:{name}", seed=3)
    torch.testing.assert_close(whole[1:2], alone)


@pytest.mark.parametrize("name", [name for name in CLASSES if name not in ("ShapleyValueSampling", "Lime")])
def test_every_class_of_captum_explains_or_says_why_not(name):
    """The two left out take seconds; Lime is above."""
    maps, why = None, ""
    try:
        maps = scs_eval.attribute(convolutional(), IMAGES[:1], TARGETS[:1], method=f"captum:{name}")
    except InputError as error:
        why = str(error)
    if name in REFUSED or "Neuron" in name or "LLM" in name or name == "LimeBase":
        assert name in why
    else:
        assert maps is not None, why
        assert maps.shape == (1, 3, 16, 16)


def test_relevance_is_conserved_where_captum_has_no_rule_for_a_layer():
    """Without biases, LRP's relevances add up to the logit; 1e-5 of it is rounding."""
    torch.manual_seed(0)
    layers = (nn.Conv2d(3, 4, 3, bias=False), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(196, 5, bias=False))
    model = nn.Sequential(*layers).eval()
    maps = scs_eval.attribute(model, IMAGES, TARGETS, method="captum:LRP")
    torch.testing.assert_close(
        maps.sum((1, 2, 3)), model(IMAGES).gather(1, TARGETS[:, None])[:, 0], rtol=1e-5, atol=1e-6
    )
    assert not hasattr(model[3], "rule"), "the model stays as it is"


def test_unknown_classes():
    with pytest.raises(InputError, match="no class 'Salience'; did you mean Saliency"):
        scs_eval.attribute(convolutional(), IMAGES, TARGETS, method="captum:Salience")
    with pytest.raises(InputError, match="no attack 'LinfPGDD'; did you mean LinfPGD"):
        attack(convolutional(), IMAGES, TARGETS, 0.1, settings=Attack(name="foolbox:LinfPGDD"))


def test_squares():
    assert squares(torch.zeros(1, 3, 4, 5), 2)[0, 0].tolist() == [[0, 0, 1, 1, 2]] * 2 + [[3, 3, 4, 4, 5]] * 2


@pytest.mark.parametrize(
    ("name", "norm", "theirs"),
    [
        ("LinfPGD", "linf", foolbox.attacks.LinfPGD(steps=5, rel_stepsize=0.25, random_start=False)),
        ("L2PGD", "l2", foolbox.attacks.L2PGD(steps=5, rel_stepsize=0.25, random_start=False)),
        ("LinfDeepFoolAttack", "linf", foolbox.attacks.LinfDeepFoolAttack(steps=5)),
    ],
)
def test_foolbox_gives_what_foolbox_gives(name, norm, theirs):
    """Our ball is the nearest float inside, foolbox's may be one rounding outside: 1e-6 of values in [0, 1]."""
    model, eps = convolutional(), 0.05 if norm == "linf" else 0.5
    labels = model(IMAGES).argmax(1)
    network = foolbox.PyTorchModel(model, bounds=(0, 1))
    _, points, fooled = theirs(network, IMAGES, labels, epsilons=eps)
    settings = Attack(name=f"foolbox:{name}", norm=norm, steps=5, random_start=False)
    ours = attack(model, IMAGES, labels, eps, settings=settings)
    torch.testing.assert_close(ours.images, points, atol=1e-6, rtol=0)
    assert torch.equal(ours.is_adversarial, fooled)


@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_foolbox_is_told_the_distance_where_it_asks(norm):
    settings = Attack(name="foolbox:LinearSearchContrastReductionAttack", norm=norm)
    reached = attack(convolutional(), IMAGES, TARGETS, 0.3, settings=settings)
    assert reached.images.shape == IMAGES.shape


def test_what_an_attack_lacks_is_one_line():
    def numbered(model, images, labels, eps):
        import no_such_package  # noqa: F401

    (settings,) = as_attacks([numbered])
    with pytest.raises(InputError, match="the attack numbered needs another package"):
        attack(convolutional(), IMAGES, TARGETS, 0.1, settings=settings)
    (settings,) = as_attacks(["torchattacks:APGDT"])  # asks for nine other classes, and there are five
    with pytest.raises(InputError, match="torchattacks:APGDT cannot attack this model"):
        attack(convolutional(), IMAGES, TARGETS, 0.1, settings=settings)


def test_foolbox_says_its_norm():
    with pytest.raises(InputError, match="works in l2, expected linf"):
        attack(convolutional(), IMAGES, TARGETS, 0.1, settings=Attack(name="foolbox:L2PGD"))


def test_own_attack_has_our_ball_our_verdict_and_our_search():
    """Far outside the ball and beyond [0, 1]: what counts is the corner of the ball, judged by the model."""
    asked = []

    def far(model, images, labels, eps, *, norm, steps, seed):
        asked.append((norm, steps, eps))
        return images + 100 * torch.sign(images - 0.5)

    model = convolutional()
    labels = model(IMAGES).argmax(1)
    (settings,) = as_attacks([far])
    found = attack(model, IMAGES, labels, 0.1, settings=settings)
    corner = (IMAGES + 0.1 * torch.sign(IMAGES - 0.5)).clamp(0, 1)
    torch.testing.assert_close(found.images, corner, atol=1e-6, rtol=0)  # one rounding of values in [0, 1]
    assert torch.equal(found.is_adversarial, model(corner).argmax(1) != labels)
    assert asked == [("linf", 10, pytest.approx(0.1))]
    swept = sweep(model, IMAGES, labels, [0.05, 0.1, 0.2, 0.5], attacks=as_attacks([far]))
    by_hand = torch.full((3,), torch.inf, dtype=torch.float64)
    for eps in (0.5, 0.2, 0.1, 0.05):
        moved = (IMAGES + eps * torch.sign(IMAGES - 0.5)).clamp(0, 1)
        by_hand[model(moved).argmax(1) != labels] = eps
    assert swept.min_eps.tolist() == by_hand.tolist()


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda model, images, labels, eps: images[:1], "'broken' gave shape"),
        (lambda model, images, labels, eps: images * torch.nan, "'broken' gave NaN"),
        (lambda model, images, labels, eps: None, "'broken' gave NoneType"),
    ],
)
def test_a_broken_attack_is_reported_with_its_name(function, message):
    scs_eval.register_attack("broken")(function)
    with pytest.raises(InputError, match=message):
        attack(convolutional(), IMAGES, TARGETS, 0.1, settings=Attack(name="broken"))


def test_an_attack_says_its_norms():
    scs_eval.register_attack("only_l2", norms=("l2",))(lambda model, images, labels, eps: images)
    with pytest.raises(InputError, match="works in l2, not in linf"):
        Attack(name="only_l2")
    (settings,) = as_attacks(["only_l2-l2"])
    assert settings.norm == "l2"
    with pytest.raises(InputError, match="without a hyphen"):
        scs_eval.register_attack("my-attack")(lambda model, images, labels, eps: images)
