"""The command line: one file per command, each a parser around one library function."""
