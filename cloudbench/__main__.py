"""`python -m cloudbench` is the command line."""

from cloudbench.cli import main

main()
