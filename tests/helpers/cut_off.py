"""Progress that ends the work after so many words, as Ctrl-C would."""


class StopError(Exception):
    """Nothing else raises it."""


class CutOff:
    """Progress: keeps what it is told, and raises when it is told something for the `after`-th time."""

    def __init__(self, after: int) -> None:
        self.after, self.told = after, list[int]()

    def __call__(self, count: int) -> None:
        self.told.append(count)
        if len(self.told) == self.after:
            raise StopError
