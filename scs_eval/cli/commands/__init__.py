"""One file a command: parse, call, write, print."""
