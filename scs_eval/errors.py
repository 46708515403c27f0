"""The one exception for a wrong request."""


class InputError(ValueError):
    """What the user asked for cannot be done as asked.

    The message is one line: what was expected, what came, what to do. The command line prints it and exits with 2;
    any other exception is a failure of the work and exits with 1.
    """
