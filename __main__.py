"""`python -m bringup` is the command `bringup`."""

from bringup.commands.main import main

main()
