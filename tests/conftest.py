"""What all tests share."""

from __future__ import annotations

import signal
from pathlib import Path

# Before pytest does: it takes the root of the checkout for a package, and would import that under this name where the
# folder is called `bringup`. Tests are of the installed package.
import bringup

# A job in the background is started with these ignored, and so would be all that tests start.
signal.signal(signal.SIGINT, signal.default_int_handler)
for ignored in (signal.SIGHUP, signal.SIGQUIT):
    signal.signal(ignored, signal.SIG_DFL)


def pytest_report_header() -> str:
    return f"bringup: {bringup.__version__}, {Path(bringup.__file__).parent}"
