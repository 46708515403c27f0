"""Commands that would read the whole sample read a few of its images."""

from pathlib import Path

import pytest

from scs_eval.cli.data_request import DataRequest
from scs_eval.data import ImageData, load_data


def use_few_images(monkeypatch: pytest.MonkeyPatch, folder: Path, *, n: int) -> ImageData:
    """From here on `sample` is n images, and results go below the folder."""
    data = load_data("sample", n=n)
    read = DataRequest.read
    few = lambda asked, **options: data if asked.source == "sample" else read(asked, **options)  # noqa: E731
    monkeypatch.setattr(DataRequest, "read", few)
    monkeypatch.chdir(folder)
    return data
