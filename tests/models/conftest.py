"""The layers' two fast paths: compiled passes, and torch's operations where nothing was compiled."""

import pytest

from scs_eval.models.layers.kernels import fused


@pytest.fixture(params=["compiled", "torch"])
def passes(request, monkeypatch):
    if request.param == "torch":
        monkeypatch.setattr(fused, "LIBRARY", None)
    elif fused.LIBRARY is None:
        pytest.skip("installed without a compiler")
    return request.param
