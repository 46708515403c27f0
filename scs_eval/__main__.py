"""`python -m scs_eval …`, which is how torchrun starts the command line."""

from scs_eval.cli.main import main

if __name__ == "__main__":
    main()
