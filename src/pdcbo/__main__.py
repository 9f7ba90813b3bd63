"""`python -m pdcbo`: the command."""

from pdcbo.cli import main

main()
