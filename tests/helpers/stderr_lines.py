"""What a command that was refused wrote to stderr."""


def error_lines(stderr: str | bytes) -> list[str]:
    """Its lines, without the one that says after some seconds that the command is still starting."""
    text = stderr.decode() if isinstance(stderr, bytes) else stderr
    return [line for line in text.strip().splitlines() if ": working for " not in line]
