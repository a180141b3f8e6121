"""``python -m groupwise.cli`` is the ``groupwise`` command."""

from groupwise.cli.main import main

main()
