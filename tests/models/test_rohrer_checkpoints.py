"""State dicts of older versions of Rohrer's layer give the answers of the formulas they were trained with."""

import pytest
import torch
from torch.nn import functional as F

from scs_eval.errors import InputError
from scs_eval.models.loading.load import load_model
from scs_eval.models.loading.rohrer_checkpoints import from_gallery

SIZES = [(24, 3, 0), (48, 24, 1), (96, 48, 1)]  # Rohrer68K: output and input channels, padding
IMAGES = torch.rand(4, 3, 32, 32, generator=torch.Generator().manual_seed(1))


def old_state(version):
    """A trained-looking state dict, as that version of the layer would save it."""
    draw = torch.Generator().manual_seed(version)
    normal = lambda *shape: torch.randn(*shape, generator=draw)  # noqa: E731
    state = {"out.weight": normal(10, 1536) / 10, "out.bias": normal(10)}
    for place, (outputs, inputs, _) in enumerate(SIZES, start=1):
        kernels = 2 * normal(outputs, inputs, 3, 3)
        if version == 1:
            mine = {"w": kernels.flatten(2), "p": 14 + normal(outputs), "q": 10 + normal(1)}
        elif version == 5:
            mine = {"weight": kernels, "p": 3.5 + normal(outputs), "q": 0.3 + 0.1 * normal(1), "bias": normal(outputs)}
        else:
            mine = {"weight": kernels, "p": 3.5 + normal(1, outputs, 1, 1), "q": 0.3 + 0.1 * normal(1, 1, 1, 1)}
            mine["alpha"] = 10 + normal(1, 1, 1, 1)
        state |= {f"scs{place}.{name}": value for name, value in mine.items()}
    return state


def old_answer(state, version):
    """The network of the scripts with that version's formula, in float64."""
    x = IMAGES.double()
    for place, (outputs, inputs, padding) in enumerate(SIZES, start=1):
        t = {key.partition(".")[2]: v.double() for key, v in state.items() if key.startswith(f"scs{place}.")}
        w = t["w"].reshape(outputs, inputs, 3, 3) if version == 1 else t["weight"]
        p = (t["p"] / 10) ** 2 if version == 1 else (t["p"] / 5).exp()
        q = (t["q"] / 100) ** 2 if version == 1 else (-t["q"] / 0.3).exp()
        norm = (F.conv2d(x**2, torch.ones_like(w[:1]), padding=padding) + 1e-6).sqrt() + q.reshape(1, 1, 1, 1)
        c = F.conv2d(x, w / w.square().sum((1, 2, 3), keepdim=True).sqrt(), padding=padding) / norm
        y = t.get("alpha", torch.ones(())).reshape(-1) * c.sign() * (c.abs() + 1e-6) ** p.reshape(1, -1, 1, 1)
        top, bottom = F.max_pool2d(y, 2, ceil_mode=True), F.max_pool2d(-y, 2, ceil_mode=True)
        x = torch.where(top >= bottom, top, -bottom)
    return x.flatten(1) @ state["out.weight"].double().T + state["out.bias"].double()


@pytest.mark.parametrize("version", [1, 5, 6])
def test_older_layers_answer_as_they_did(tmp_path, version):
    state = old_state(version)
    torch.save(state, tmp_path / "old.pt")
    expected = old_answer(state, version)
    found = load_model(tmp_path / "old.pt", arch="rohrer68k_scs")(IMAGES).double()
    # float32, and 1e-6 beside a sum of squares that alpha has scaled; the answers differ between images by far more.
    assert (found - expected).abs().max() < 1e-3 * expected.std()


def test_a_negative_scale_is_refused():
    state = old_state(6)
    state["scs2.alpha"] *= -1
    with pytest.raises(InputError, match="negative alpha"):
        from_gallery(state)


def test_one_exponent_for_a_layer_becomes_one_a_kernel():
    state = old_state(5)
    state["scs1.p"] = torch.tensor([5.0])
    found = from_gallery(state)
    assert found["stages.0.layer.p"].shape == (1, 24, 1, 1)
    assert found["stages.0.layer.p"].unique().item() == pytest.approx(2.71828, rel=1e-5)
