"""Calls that an interrupt from the keyboard waits for.

A result that is half entered, learned but not counted or the other way round, would be entered twice when it is told
again. Python hands interrupts to the main thread only; elsewhere, and where nobody handles them in Python, there is
nothing to wait for.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from functools import wraps
from types import FrameType
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


def uninterrupted(method: Callable[P, R]) -> Callable[P, R]:
    """Have a method take interrupts when it is done."""

    @wraps(method)
    def whole(*args: P.args, **kwargs: P.kwargs) -> R:
        handler = signal.getsignal(signal.SIGINT)
        if threading.current_thread() is not threading.main_thread() or not callable(handler):
            return method(*args, **kwargs)
        waiting: list[tuple[int, FrameType | None]] = []
        signal.signal(signal.SIGINT, lambda number, frame: waiting.append((number, frame)))
        try:
            return method(*args, **kwargs)
        finally:
            signal.signal(signal.SIGINT, handler)
            if waiting:
                handler(*waiting[0])

    return whole
