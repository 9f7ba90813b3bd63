"""`python -m pdcbo`: the command."""

from pdcbo.cli import main

if __name__ == "__main__":
    main()
