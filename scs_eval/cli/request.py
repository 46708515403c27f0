"""What every analysis is asked for, as one object: models, images, device, seed, and where the result goes."""

import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field, replace
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from scs_eval.analyses.catalogue import ENTRIES
from scs_eval.cli.cluster_request import cluster_options, part_options, submit_request
from scs_eval.cli.data_request import ALL_IMAGES, DataRequest, data_settings
from scs_eval.cli.output import finish, folder_name, out_option, say
from scs_eval.cli.params import MODEL, SEED, options_from, source_options
from scs_eval.errors import InputError, did_you_mean
from scs_eval.models.loading.sources import UNTRAINED, ModelSource, NamedModel, parse_sources, split_label
from scs_eval.progress import log_lines

if TYPE_CHECKING:
    from scs_eval.analyses.core.result import Result
    from scs_eval.data import ImageData

Function = TypeVar("Function", bound=Callable[..., Any])
REFERENCE = "The model that the others are compared with.  [default: the architecture's convolution network]"
R = TypeVar("R", bound="Result")
DESCRIPTION_FILE = "result.json"  # as `storage` calls it, which would import numpy


@dataclass(frozen=True, kw_only=True)
class Request:
    """A request as it was typed. `open` loads the models; nothing is loaded before.

    typed: the models in the user's words, after whose labels or names the folder of the result is named.
    reference: the label of the model that the others are compared with, if not by the rule. tf32: let a GPU round the
    factors of products, which is faster and changes logits by about a thousandth. only, parts: of a cluster's
    job: the label of the model it is about, and where its results are kept for the job that merges.
    """

    analysis: str
    models: tuple[ModelSource, ...]
    typed: tuple[str, ...]
    data: DataRequest
    seed: int
    device: str
    target: Path | None
    reference: str | None = None
    tf32: bool = False
    only: str | None = None
    parts: Path | None = None

    @property
    def out(self) -> Path:
        """The folder of the result: --out, or results/<analysis>/<the models>."""
        names = [split_label(text)[0] or text for text in self.typed]
        return self.target or Path("results", self.analysis, folder_name(names))

    def without(self, labels: Sequence[str]) -> "Request":
        """The same request for the other models."""
        return replace(self, models=tuple(asked for asked in self.models if asked.label not in labels))

    def alone(self) -> "Request":
        """The request for the one model that a cluster's job is about; the folder keeps its name."""
        models = tuple(asked for asked in self.models if asked.label == self.only)
        return replace(self, models=models, target=self.out)

    @contextmanager
    def open(self) -> Iterator["Session"]:
        """The models loaded, where they are to compute; inside, work is shared with torchrun's other processes.

        All of them first: a misspelt name should not cost the work before it.
        """
        from scs_eval.devices import choose_device
        from scs_eval.models.explain.precision import allow_tf32
        from scs_eval.report.folder import check_space, check_target

        check_space(check_target(self.out))
        allow_tf32(self.tf32)
        with shared_work():
            device = choose_device(self.device)
            classes = self._classes_of_data()
            loaded = {asked.label: asked.open(num_classes=classes, device=device) for asked in self.models}
            for label, named in loaded.items():
                if named.loaded.notes:
                    say(f"{label}: {'; '.join(named.loaded.notes)}", err=True)
            yield Session(request=self, models=loaded, device=device)

    def _classes_of_data(self) -> int | None:
        """As many classes an untrained network gets."""
        if not any(asked.weights == UNTRAINED for asked in self.models):
            return None
        from scs_eval.data.sources import count_classes

        return count_classes(self.data.source)


@dataclass(frozen=True, kw_only=True)
class Session:
    """A request whose models are loaded: reads their images, and writes the result."""

    request: Request
    models: dict[str, NamedModel]
    device: str
    _read: dict[Any, "ImageData"] = field(default_factory=dict)

    @property
    def num_classes(self) -> int | None:
        """How many classes the models tell apart, if that is known and the same for all."""
        counts = {named.num_classes for named in self.models.values()}
        return counts.pop() if len(counts) == 1 else None

    def all_images(self, label: str, *, n: int | None) -> "ImageData":
        """n images, or all, in the order of the source, at the size of a model."""
        return self._once(("all", n), label, lambda options: self.request.data.read(n=n, **options))

    def images(
        self,
        label: str,
        *,
        default_n: int,
        class_name: str | None = None,
    ) -> "ImageData":
        """The images that were asked for, dealt class by class, at the size of a model.

        Those of --indices all and in that order, unless -n asks for so many of them.
        """

        def read(options: dict[str, Any]) -> "ImageData":
            data = self.request.data
            indices = data.indices if data.n is None else None
            some = class_name is None and indices is None
            images = data.read_some(default_n=default_n, **options) if some else data.read(n=None, **options)
            return self._selected(images, class_name=class_name, indices=indices, default_n=default_n)

        return self._once((class_name, default_n), label, read)

    def _selected(self, images: "ImageData", *, class_name: str | None, **options: Any) -> "ImageData":
        from scs_eval.analyses.core.validation import class_position
        from scs_eval.data.selection import select_images

        position = None if class_name is None else class_position(class_name, images.classes)
        return select_images(images, label=position, n=self.request.data.n, seed=self.request.seed, **options)

    def _once(self, what: tuple[Any, ...], label: str, read: Callable[[dict[str, Any]], "ImageData"]) -> "ImageData":
        size = self.models[label].input_size
        if (key := (*what, size)) not in self._read:
            self._read[key] = read({"seed": self.request.seed, "size": size, "num_classes": self.num_classes})
        return self._read[key]

    def references(self) -> dict[str, str]:
        """What each model is compared with, by label."""
        from scs_eval.models.zoo.counterparts import references_of

        networks = {label: _network(named) for label, named in self.models.items()}
        return references_of(networks, asked=self.request.reference)

    def settings(self, data: "ImageData") -> dict[str, Any]:
        """What a result depends on in its images."""
        return data_settings(data, seed=self.request.seed)

    def asked(self, label: str) -> bool:
        """Whether this model is to be worked on: all, unless this is one job of several."""
        return self.request.only in (None, label)

    def result(self, compute: "Callable[[], R]", *key: str) -> "R":
        """What `compute` gives for the model and so on that the key names; of a cluster's jobs, kept in the parts."""
        from scs_eval.analyses.core.parallel import barrier, broadcast_from_main, is_main_process
        from scs_eval.analyses.core.storage import load_result
        from scs_eval.report.folder import replacing

        if self.request.parts is None:
            return compute()
        folder = self.request.parts / folder_name(key)
        if broadcast_from_main((folder / DESCRIPTION_FILE).is_file):
            return load_result(folder)  # type: ignore[return-value]
        computed = compute()
        if is_main_process():
            with replacing(folder) as new:
                computed.save(new)
        barrier()
        return computed

    def finish(self, result: "Result") -> None:
        """Write the result, each model beside its reference; print its summary and, last, where it is.

        One of several jobs leaves that to the last.
        """
        from scs_eval.analyses.core.parallel import is_main_process
        from scs_eval.analyses.core.result import Comparison

        if self.request.only is not None:
            return
        if isinstance(result, Comparison):
            result = replace(result, references=self.references())
        finish(result, self.request.out)
        if self.request.parts is not None and is_main_process():
            for path in self.request.parts.glob(f"*/{DESCRIPTION_FILE}"):
                shutil.rmtree(path.parent, ignore_errors=True)


def _network(named: NamedModel) -> str:
    """The name of what was loaded, with the seed of a zoo name; the label where that is all there is."""
    return named.origin.source if named.origin.shipped() else named.architecture or named.label


def request_options(
    analysis: str, *, default: Sequence[str] | None = None, n_help: str = ALL_IMAGES, together: bool = False
) -> Callable[[Function], Function]:
    """Everything that goes into a `Request`; the command gets it as `request`.

    default: the models where none are named; None asks for at least one. together: what one model is asked depends on
    the others, so that a cluster's job about one of them needs all.
    """

    def decorate(function: Function) -> Function:
        @wraps(function)
        def wrapper(
            *arguments: Any, bare: tuple[str, ...], models: tuple[str, ...], arch: str | None, weights: str | None,
            normalize: str | None, data: DataRequest, seed: int, device: str, out: Path | None, reference: str | None,
            cluster: str | None, cluster_option: tuple[str, ...], only: str | None, parts: Path | None, tf32: bool,
            **options: Any,
        ) -> Any:  # fmt: skip
            typed = (*bare, *models)
            if not typed and default is None:
                raise click.UsageError("Missing option '--model'.")
            silent = analysis not in ENTRIES  # a page that is served
            with nullcontext() if silent else log_lines(analysis):  # already here: a model's weights may need torch
                request = Request(
                    analysis=analysis,
                    models=parse_sources(typed or default or (), arch=arch, weights=weights, normalize=normalize),
                    typed=typed or tuple(name for name in default or () if name != EVERY_SEED),
                    data=data,
                    seed=seed,
                    device=device,
                    target=out,
                    reference=reference,
                    tf32=tf32,
                    only=only,
                    parts=parts,
                )
                check_reference(request)
                if cluster is not None:
                    return submit_request(request, cluster, cluster_option)
                if cluster_option:
                    raise InputError("--cluster-option needs --cluster slurm or local")
                alone = only is not None and not together
                return function(*arguments, request=request.alone() if alone else request, **options)

        own = list(getattr(wrapper, "__click_params__", ()))  # in the help they stand behind the models
        wrapper.__click_params__ = []  # type: ignore[attr-defined]
        wrapper = device_option(tf32_option(out_option(cluster_options(part_options(wrapper)))))
        wrapper = click.option("--reference", help=REFERENCE)(wrapper)
        wrapper = click.option("--seed", type=SEED, default=0, show_default=True, help="Seed of every random choice.")(
            wrapper
        )
        wrapper = options_from(DataRequest, into="data", helps={"n": n_help})(wrapper)
        wrapper.__click_params__ += own  # type: ignore[attr-defined]
        wrapper = source_options(wrapper)
        text = "Name, pattern, file, torchvision:NAME or module:factory; repeatable, or without --model."
        wrapper = click.option("--model", "models", type=MODEL, multiple=True, help=text)(wrapper)
        return click.argument("bare", nargs=-1, type=MODEL, metavar="[MODEL]...")(wrapper)  # type: ignore[return-value]

    return decorate


def check_reference(request: Request) -> None:
    """Raise unless the reference that was asked for is one of the models."""
    labels = [asked.label for asked in request.models]
    if request.reference is not None and request.reference not in labels:
        hint = did_you_mean(request.reference, labels, otherwise=f"models: {', '.join(labels)}")
        raise InputError(f"expected --reference to be one of the models, got {request.reference!r}; {hint}")


tf32_option = click.option(
    "--tf32", is_flag=True, help="Let a GPU round the factors of products to 10 bits: faster, and W(x) inexact."
)
EVERY_SEED = "*@*"  # every trained model, with every seed
device_option = click.option(
    "--device", default="auto", show_default=True, help="Where to compute: cpu, cuda, cuda:1, mps; auto takes a GPU."
)


@contextmanager
def shared_work() -> Iterator[None]:
    """Inside, the analyses share their work with torchrun's other processes, of which only the first talks."""
    from scs_eval.analyses.core.parallel import is_main_process, sharing

    with sharing():
        if is_main_process():
            yield
            return
        with Path(os.devnull).open("w") as nothing, redirect_stdout(nothing), redirect_stderr(nothing):
            yield
