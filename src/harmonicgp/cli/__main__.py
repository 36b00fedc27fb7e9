"""`python -m harmonicgp.cli`."""

from harmonicgp.cli import main

if __name__ == "__main__":
    main()
