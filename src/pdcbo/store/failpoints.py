"""Named places where a test may kill the process: `PDCBO_FAILPOINT=name` or `name:5` for the fifth passage.

The process ends as by `kill -9`, without any clean-up. Without the variable a failpoint costs one comparison.
"""

from __future__ import annotations

import os
import signal

NAMES = (
    "ask-begin",
    "ask-proposed",
    "ask-appended",
    "ask-done",
    "tell-begin",
    "tell-appended",
    "tell-done",
    "fail-appended",
    "after-append",
    "before-commit",
    "after-commit",
    "checkpoint-begin",
    "checkpoint-done",
)

_armed = ""
_left = 0


def arm(text: str) -> None:
    """Arm the failpoint that `name` or `name:count` names; an empty text disarms."""
    global _armed, _left
    _armed, _, count = text.partition(":")
    _left = int(count or 1)


def failpoint(name: str) -> None:
    """End the process here if this failpoint is armed."""
    global _left
    if name != _armed:
        return
    _left -= 1
    if _left == 0:
        os.kill(os.getpid(), signal.SIGKILL)


arm(os.environ.get("PDCBO_FAILPOINT", ""))
