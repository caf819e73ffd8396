"""gRPC, imported after the environment variables that are its only configuration of logs and forks.

Whoever needs gRPC takes it from here: it reads these variables when it is first imported, and never again.
"""

from __future__ import annotations

import os

# gRPC's core reports every connection that a failing peer drops on stderr, and even as errors the names that strangers
# ask for in TLS: they would write there what and as often as they like. A user who wants that sets the variable.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
# Its fork handlers crash about every sixth child of a process that is in a job; without them children live, and they
# have no use for gRPC.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")

import grpc as grpc
