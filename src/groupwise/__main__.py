"""``python -m groupwise``, as torchrun starts it, is the ``groupwise`` command."""

import sys

if not sys.flags.safe_path:
    del sys.path[0]  # the working folder is no place to import from, as with the installed command

from groupwise.cli.main import main

main()
