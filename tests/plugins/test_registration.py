"""One line each: what is registered from a notebook, a file or a package is known everywhere."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner
from small_networks import convolutional
from torch import nn

import scs_eval
from scs_eval import InputError
from scs_eval.analyses.attribution.methods import METHODS
from scs_eval.cli.main import cli, split_plugins
from scs_eval.plugins import Registry, load_plugin

IMAGES = torch.rand(3, 3, 16, 16, generator=torch.Generator().manual_seed(5))
TARGETS = torch.tensor([0, 3, 2])


def bright(model, images, targets):
    """How bright a pixel is."""
    return images


def flat(model, images, targets):
    return images.mean(1)


def test_a_method_in_one_line():
    scs_eval.register_method(bright, source="here", passes=0)
    assert (METHODS["bright"].measures, METHODS["bright"].source) == ("How bright a pixel is.", "here")
    model = convolutional()
    assert torch.equal(scs_eval.attribute(model, IMAGES, TARGETS, method="bright"), IMAGES)
    assert torch.equal(scs_eval.attribute(model, IMAGES, TARGETS, method=bright), IMAGES)
    listed = CliRunner().invoke(cli, ["methods", "bright"]).output
    assert "How bright a" in listed


def test_functions_where_a_name_is_accepted():
    maps = scs_eval.attribute(convolutional(), IMAGES, TARGETS, method=flat)
    assert torch.equal(maps, IMAGES.mean(1, keepdim=True).expand(-1, 3, -1, -1)), "whole pixels: every channel the same"
    assert "flat" not in METHODS, "passing a function registers nothing"


def test_a_function_that_asks_for_the_seed_is_told():
    def noise(model, images, targets, seed):
        return torch.randn(images.shape, generator=torch.Generator().manual_seed(seed))

    maps = [scs_eval.attribute(convolutional(), IMAGES, TARGETS, method=noise, seed=seed) for seed in (0, 0, 1)]
    assert torch.equal(maps[0], maps[1])
    assert not torch.equal(maps[0], maps[2])


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda model, images, targets: images[:, :, :4], r"'broken' gave shape \(3, 3, 4, 16\)"),
        (lambda model, images, targets: images.numpy(), "'broken' gave ndarray"),
        (lambda model, images, targets: images * torch.nan, "broken gives NaN"),
    ],
)
def test_a_wrong_answer_is_reported_with_the_name(function, message):
    scs_eval.register_method("broken")(function)
    with pytest.raises(InputError, match=message):
        scs_eval.attribute(convolutional(), IMAGES, TARGETS, method="broken")


def test_names_are_taken_once_but_a_cell_may_run_twice():
    def cell():
        def mine(model, images, targets):
            return images

        return mine

    scs_eval.register_method("mine")(cell())
    scs_eval.register_method("mine")(cell())  # the same function, defined anew
    with pytest.raises(InputError, match="there is a method 'mine' already"):
        scs_eval.register_method("mine")(bright)
    with pytest.raises(InputError, match="there is a method 'grad' already"):
        scs_eval.register_method("grad")(bright)

    def grad(model, images, targets):
        return images

    with pytest.raises(InputError, match="rename the function"):
        scs_eval.attribute(convolutional(), IMAGES, TARGETS, method=grad)


def test_misspelt_traits():
    with pytest.raises(InputError, match="no trait 'quantitty'; did you mean quantity"):
        scs_eval.register_method(bright, quantitty="sensitivity")
    with pytest.raises(InputError, match="no trait 'norm'; did you mean norms"):
        scs_eval.register_attack(bright, norm="l2")
    with pytest.raises(InputError, match="a function of"):
        scs_eval.attribute(convolutional(), IMAGES, TARGETS, method=nn.ReLU)


def test_a_model_in_one_line():
    @scs_eval.register_model("plain", input_size=16)
    def build(num_classes):
        return nn.Sequential(nn.Flatten(), nn.Linear(768, num_classes))

    assert "plain" in scs_eval.list_models()
    assert scs_eval.create_model("plain", num_classes=4)(IMAGES).shape == (3, 4)
    with pytest.raises(InputError, match="no trained weights for 'plain'"):
        scs_eval.load_model("plain")
    assert "768" not in CliRunner().invoke(cli, ["models", "plain"]).output
    assert "7,690" in CliRunner().invoke(cli, ["models", "plain"]).output
    with pytest.raises(InputError, match="there is a model 'rohrer100k_scs' already"):
        scs_eval.register_model("rohrer100k_scs")(build)


def test_a_model_that_brings_its_weights():
    @scs_eval.register_model("constant", trained=True)
    def build(num_classes):
        model = nn.Sequential(nn.Flatten(), nn.Linear(3072, num_classes))
        nn.init.constant_(model[1].weight, 0.5)
        return model

    assert (scs_eval.load_model("constant")[1].weight == 0.5).all()


def test_data_in_one_line():
    pixels = torch.randint(0, 256, (12, 3, 32, 32), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))

    @scs_eval.register_data("own")
    def own():
        return pixels.numpy(), torch.arange(12).numpy() % 3, ("a", "b", "c")

    data = scs_eval.load_data("own", n=6)
    assert (len(data), data.classes, data.source) == (6, ("a", "b", "c"), "own")
    assert torch.equal(data.images, pixels[data.indices].float() / 255)
    assert data.labels.bincount().tolist() == [2, 2, 2], "evenly over the classes"
    done = CliRunner().invoke(cli, ["data", "own"])
    assert "12 images of 32×32 from own" in done.output
    scs_eval.register_data("bad")(lambda: (pixels.numpy(), [1, 2]))
    with pytest.raises(InputError, match="the data 'bad': expected"):
        scs_eval.load_data("bad")
    with pytest.raises(InputError, match="did you mean own"):
        scs_eval.load_data("owm")


def test_functions_in_the_analyses():
    model, images = convolutional(), IMAGES
    labels = model(images).argmax(1)

    def towards_grey(model, images, labels, eps):
        return images + eps * torch.sign(0.5 - images)

    swept = scs_eval.pgd(
        model,
        images,
        labels,
        eps=[0.1, 0.5],
        classes=list("abcde"),
        attacks=[towards_grey, "fgsm"],
        options=scs_eval.PgdOptions(scorecard=None),
    )
    assert swept.attacks == ("towards_grey", "fgsm")
    grey = model(images + (0.5 - images).clamp(-0.5, 0.5)).argmax(1) != labels
    assert not (grey.numpy() & ~swept.is_adversarial[-1]).any(), "what the function fools is found"
    few = scs_eval.SaliencyOptions(samples=0)
    maps = scs_eval.saliency(model, images, labels, classes=list("abcde"), method=flat, options=few)
    assert maps.method == "flat"
    torch.testing.assert_close(torch.from_numpy(maps.maps), images.mean(1))
    short = scs_eval.FaithfulnessOptions(steps=4)
    tested = scs_eval.faithfulness(model, images, classes=list("abcde"), methods=[flat, "grad"], options=short)
    assert tested.methods[:2] == ("flat", "grad")


PLUGIN = '''
import scs_eval

@scs_eval.register_method("bright_file", source="a file")
def bright(model, images, targets):
    """How bright a pixel is."""
    return images
'''


def test_a_file_on_the_command_line(tmp_path: Path):
    file = tmp_path / "own.py"
    file.write_text(PLUGIN)
    code = (
        "import sys; from scs_eval.cli.main import main; "
        f"sys.argv = ['scs-eval', 'saliency', '--model', 'rohrer25k_scs', '--method', 'bright_file', '-n', '6', "
        f"'--plugin', {str(file)!r}, '--out', {str(tmp_path / 'out')!r}]; main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    result = scs_eval.load_result(tmp_path / "out")
    assert result.method == "bright_file"
    data = scs_eval.load_data("sample")
    first = data.images[data.indices == int(result.indices[0])][0]
    assert torch.equal(torch.from_numpy(result.maps[0]), first.amax(0))


def test_a_file_that_fails_is_one_line(tmp_path: Path):
    (tmp_path / "bad.py").write_text("1 / 0")
    for words in (["--plugin", str(tmp_path / "bad.py"), "methods"], ["methods", f"--plugin={tmp_path / 'bad.py'}"]):
        with pytest.raises(InputError, match=r"bad\.py failed: ZeroDivisionError"):
            raise CliRunner().invoke(cli, words).exception
    with pytest.raises(InputError, match="no such file"):
        load_plugin(tmp_path / "missing.py")
    (tmp_path / "taken.py").write_text(PLUGIN.replace("bright_file", "grad"))
    with pytest.raises(InputError, match=r"taken.py: there is a method 'grad' already"):
        load_plugin(tmp_path / "taken.py")


def test_where_plugin_may_stand():
    assert split_plugins(["--plugin", "a.py", "pgd", "--plugin=b.py", "-n", "3"]) == (
        ["pgd", "-n", "3"],
        ["a.py", "b.py"],
    )
    assert split_plugins(["x", "--", "--plugin", "a"]) == (["x", "--", "--plugin", "a"], [])


def installed(folder: Path, **groups: str) -> None:
    """A package with entry points, as pip leaves one."""
    (folder / "own_package.py").write_text(PLUGIN.replace("bright_file", "bright_package") + "\n\n" + OTHERS)
    info = folder / "own_package-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: own-package\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("\n".join(f"[scs_eval.{group}]\n{line}" for group, line in groups.items()))


OTHERS = """
def plain(model, images, targets):
    return images

def nudge(model, images, labels, eps):
    return images + eps

def build(num_classes):
    from torch import nn
    return nn.Sequential(nn.Flatten(), nn.Linear(3072, num_classes))
"""


def test_installed_packages_are_asked(tmp_path: Path):
    installed(
        tmp_path, methods="bright_package = own_package\nplain = own_package:plain\nlost = own_package:nowhere",
        attacks="nudge = own_package:nudge", models="own_net = own_package:build",
    )  # fmt: skip
    code = (
        "import sys, warnings; warnings.simplefilter('error')\n"
        "import scs_eval\n"
        "assert 'own_package' not in sys.modules, 'imported when first needed'\n"
        "assert scs_eval.Attack(name='nudge').kind.function.__module__ == 'own_package'\n"
        "assert 'own_net' in scs_eval.list_models()\n"
        "warnings.simplefilter('default')\n"
        "from scs_eval.analyses.attribution.methods import METHODS\n"
        "assert {'bright_package', 'plain'} < set(METHODS) and 'lost' not in METHODS\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path,
        env={"PYTHONPATH": f"{tmp_path}:{Path(scs_eval.__file__).parents[1]}", "PATH": ""},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "the plugin lost = own_package:nowhere was left out: AttributeError" in done.stderr


def test_a_registry_finds_and_suggests():
    registry: Registry[int] = Registry("a thing", group="scs_eval.none", register="")
    registry.add("one", 1)
    assert registry.find("one") == 1
    with pytest.raises(InputError, match="unknown thing 'ones'; did you mean one"):
        registry.find("ones")
    with pytest.raises(InputError, match="name of a thing"):
        registry.add("", 2)
