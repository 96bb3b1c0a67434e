"""`python -m heterophony`."""

from heterophony.cli import main

main()
