"""`python -m bringup` is the command `bringup`."""

from bringup.runtime.commands.main import main

main()
