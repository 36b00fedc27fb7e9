"""`python -m harmonicgp` is the command line."""

from harmonicgp.cli import main

if __name__ == "__main__":
    main()
