"""What all tests share."""

from __future__ import annotations

from pathlib import Path

# Before pytest does: it takes the root of the checkout for a package, and would import that under this name where the
# folder is called `bringup`. Tests are of the installed package.
import bringup


def pytest_report_header() -> str:
    return f"bringup: {bringup.__version__}, {Path(bringup.__file__).parent}"
