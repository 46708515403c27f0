"""The explorer: setting a widget's value is what a click does."""

import base64
import io
import re
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image

import scs_eval
from scs_eval.errors import InputError

DATA = scs_eval.load_data("sample", n=4, seed=0)


@pytest.fixture(scope="module")
def explorer():
    models = {"scs": scs_eval.load_model("rohrer100k_scs"), "bcos": scs_eval.create_model("rohrer100k_bcos", seed=0)}
    return scs_eval.explore(models, DATA)


def pictures(explorer):
    """Title to pixels, read back from what the browser would get."""
    found = re.findall(r'alt="([^"]+)" src="data:image/png;base64,([^"]+)"', explorer.content)
    return {title: np.array(Image.open(io.BytesIO(base64.b64decode(text)))) for title, text in found}


def set_all(explorer, **values):
    for name, value in {
        "image": 0,
        "model": "scs",
        "method": "grad",
        "class_": "predicted",
        "eps": 0.0,
        **values,
    }.items():
        getattr(explorer, name).value = value


@pytest.mark.parametrize("place", [0, 3])
@pytest.mark.parametrize("name", ["scs", "bcos"])
def test_every_choice_counts(explorer, name, place):
    set_all(explorer, image=place, model=name, class_="ship")
    image = DATA.images[place]
    np.testing.assert_array_equal(pictures(explorer)["image"], (255 * image.permute(1, 2, 0)).round().byte().numpy())
    with torch.no_grad():
        logits = explorer.models[name].eval()(image[None])[0]
    assert f"Explained: ship, logit {logits[DATA.classes.index('ship')]:.2f}" in explorer.content
    assert f"{name} says {DATA.classes[logits.argmax()]} " in explorer.content
    assert f"(label: {DATA.classes[DATA.labels[place]]})" in explorer.content


def test_predicted_and_true_class(explorer):
    wrong = scs_eval.accuracy(explorer.models["scs"], DATA.images, DATA.labels, classes=DATA.classes)
    place = int(np.flatnonzero(~wrong.correct)[0])
    set_all(explorer, image=place)
    assert f"Explained: {DATA.classes[wrong.predictions[place]]}" in explorer.content
    set_all(explorer, image=place, class_="true class")
    assert f"Explained: {DATA.classes[DATA.labels[place]]}" in explorer.content


def test_the_map_is_the_methods(explorer):
    """The strongest pixel by captum's own input × gradient is the brightest one of the picture."""
    from captum.attr import InputXGradient

    set_all(explorer, method="ixg", class_="dog")
    dog = DATA.classes.index("dog")
    image = DATA.images[:1].clone().requires_grad_()
    maps = InputXGradient(explorer.models["scs"]).attribute(image, target=dog)[0].detach().numpy()
    size = next(picture for title, picture in pictures(explorer).items() if title.startswith("size"))
    brightness = size.astype(int).sum(-1)
    assert brightness[np.unravel_index(np.abs(maps).max(0).argmax(), (32, 32))] == brightness.max()
    sign = next(picture for title, picture in pictures(explorer).items() if title.startswith("sign")).astype(int)
    total = maps.sum(0)
    for_, against = (np.unravel_index(place, (32, 32)) for place in (total.argmax(), total.argmin()))
    assert sign[for_][0] > sign[for_][2]  # orange
    assert sign[against][2] > sign[against][0]  # blue


def test_colours_where_there_are_six_channels(explorer):
    set_all(explorer, method="wx", model="bcos")
    assert "W(x) as colours" in pictures(explorer)
    assert "from pixels" in explorer.content
    set_all(explorer, method="wx")
    assert "W(x) as colours" not in pictures(explorer)


@pytest.mark.parametrize("name", ["scs", "bcos"])
def test_what_makes_the_logit_adds_up(explorer, name):
    """To the two digits that are shown of each part; B-cos networks add a constant to all logits."""
    set_all(explorer, method="wx", model=name, class_="ship")
    (line,) = re.findall(r"logit (\S+) = (.+?)\.</p>", explorer.content.replace("−", "-"))
    parts = [part.split()[0] for part in line[1].split(" + ")]
    row = scs_eval.contributions(explorer.models[name], DATA.images[:1], [DATA.classes.index("ship")]).table().iloc[0]
    assert [float(part) for part in parts[:2]] == [round(row[key], 2) for key in ("contributions", "bias")]
    assert sum(map(float, parts)) == pytest.approx(float(line[0]), abs=0.005 * (len(parts) + 1))
    assert ("logit bias (all classes)" in line[1]) == (name == "bcos") == (row["logit_bias"] != 0)


def test_an_image_is_attacked_alone(explorer):
    """Of a full batch of copies, which `pgd` needs for its bits, a click would wait several times as long."""
    counts = []
    watch = explorer.models["scs"].register_forward_pre_hook(lambda model, inputs: counts.append(len(inputs[0])))
    set_all(explorer, eps=8 / 255)
    watch.remove()
    assert set(counts) == {1}


def test_additive_maps_say_what_they_leave_out():
    explorer = scs_eval.explore(["rohrer100k_scs"], DATA, methods=["intgrad", "grad"])
    image, options = DATA.images[:1], scs_eval.SaliencyOptions(target="predicted", samples=0)
    result = scs_eval.saliency("rohrer100k_scs", image, DATA.labels[:1], method="intgrad", options=options)
    assert f"; the map leaves out {result.summary()['left out'].item()} of the change from black." in explorer.content
    explorer.method.value = "grad"
    assert "leaves out" not in explorer.content


def test_a_method_that_does_not_suit_says_so_and_the_next_works(explorer):
    set_all(explorer, method="deeplift")
    assert "deeplift has no rule for SCS2d" in explorer.content
    assert not pictures(explorer)
    set_all(explorer)
    assert len(pictures(explorer)) == 3


def test_the_attack_follows_the_choice(explorer):
    set_all(explorer, eps=8 / 255)
    assert "attacked image" in pictures(explorer)
    assert "At ε = 8/255 it says" in explorer.content
    set_all(explorer)
    assert "attacked image" not in pictures(explorer)


def test_in_a_notebook_the_picture_is_an_output_that_stays(tmp_path):
    """Run as a notebook is: the picture is HTML in the file, and follows a later choice, without any widget."""
    import nbformat
    from nbclient import NotebookClient

    lines = ["import scs_eval", "data = scs_eval.load_data('sample', n=2)"]
    lines += ["explorer = scs_eval.explore(['rohrer25k_conv'], data, methods=['grad'])", "explorer"]
    cells = [nbformat.v4.new_code_cell("\n".join(lines)), nbformat.v4.new_code_cell("explorer.class_.value = 'ship'")]
    notebook = NotebookClient(nbformat.v4.new_notebook(cells=cells), timeout=300).execute(cwd=str(tmp_path))
    texts = ["".join(output.get("data", {}).get("text/html", "")) for output in notebook.cells[0].outputs]
    (picture,) = [text for text in texts if "data:image/png" in text]
    assert "Explained: ship" in picture


def test_names_are_escaped():
    data = replace(DATA, classes=("<script>", *DATA.classes[1:]))
    explorer = scs_eval.explore({"<b>": scs_eval.load_model("rohrer100k_conv")}, data, methods=["grad"])
    explorer.class_.value = "<script>"
    assert "Explained: &lt;script&gt;" in explorer.content
    assert "<b>" not in explorer.content


def test_sources_are_loaded_and_wrong_requests_refused():
    explorer = scs_eval.explore(["rohrer100k_conv"], DATA, methods=["grad"])
    assert list(explorer.models) == ["rohrer100k_conv"]
    assert explorer.seconds > 0
    with pytest.raises(InputError, match="did you mean grad"):
        scs_eval.explore(["rohrer100k_conv"], DATA, methods=["gradd"])
    with pytest.raises(InputError, match="got 0, 4, "):
        scs_eval.explore([], DATA)


def test_without_ipywidgets(monkeypatch):
    monkeypatch.setitem(sys.modules, "ipywidgets", None)
    with pytest.raises(InputError, match=r"pip install 'scs-eval\[notebooks\]'"):
        scs_eval.explore(["rohrer100k_conv"], DATA)
