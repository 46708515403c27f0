"""From the name of the data to its batches."""

from pathlib import Path

from scs_eval.errors import InputError
from scs_eval.models.registry import input_size
from scs_eval.training.distributed import World
from scs_eval.training.job import Job
from scs_eval.training.source import ArraySource, Source


def open_data(job: Job, world: World) -> Source:
    """`cifar10` is held in memory; any other name is a folder with class folders in `train` and in `val` or `test`.

    A network made for larger images gets those of CIFAR-10 enlarged, as the analyses show them to it.
    """
    if job.data == "cifar10":
        from scs_eval.data.cifar10 import read_cifar10

        train, test = (read_cifar10(job.data_dir, train=part) for part in (True, False))
        size = input_size(job.model)
        return ArraySource(train, test, num_classes=10, recipe=job.recipe, seed=job.seed, world=world, size=size)
    root = Path(job.data)
    if not root.is_dir():
        raise InputError(f"no data {job.data!r}: expected cifar10 or a folder with train and val in it")
    from scs_eval.training.folder import FolderSource

    return FolderSource(root, recipe=job.recipe, seed=job.seed, workers=job.workers, world=world)
