"""Images from outside, by a name: a function that returns what `load_data` takes as a source."""

from collections.abc import Callable
from typing import Any, overload

from scs_eval.plugins import Registry

DataFunction = Callable[[], Any]
OWN_DATA: Registry[DataFunction] = Registry("data", group="scs_eval.data", register=f"{__name__}:register_data")


@overload
def register_data(data: DataFunction, name: str = ...) -> DataFunction: ...
@overload
def register_data(data: str | None = ..., *, name: str = ...) -> Callable[[DataFunction], DataFunction]: ...
def register_data(data: Any = None, name: str = "") -> Any:
    """Make images known by a name: to `load_data`, and to `--data` of every command.

    The function takes nothing and returns a source of `load_data`: a path, a dataset of torch or Hugging Face, or
    (images, labels) or (images, labels, classes) as arrays. It is called when the images are asked for; choosing and
    scaling them is done for it.

    >>> import numpy as np, scs_eval
    >>> @scs_eval.register_data("noise")
    ... def noise():
    ...     images = np.random.default_rng(0).integers(0, 256, (20, 3, 32, 32), dtype=np.uint8)
    ...     return images, np.arange(20) % 2, ("odd", "even")
    >>> scs_eval.load_data("noise", n=4)
    ImageData(4 images of 3×32×32, 2 classes, source='noise')
    """
    if data is None or isinstance(data, str):
        return lambda function: register_data(function, data or name)
    OWN_DATA.add(name or data.__name__, data, origin=data)
    return data
