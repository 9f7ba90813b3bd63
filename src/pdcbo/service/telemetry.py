"""Structured logs, one JSON object a line, and metrics in the Prometheus text format."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class JsonFormatter(logging.Formatter):
    """Writes a record and the fields given as `extra={"fields": {...}}` as one JSON object."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        line = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


def configure_logs(level: str = "INFO") -> None:
    """Send every log and warning of the process to standard error as JSON lines."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonFormatter())
    logging.basicConfig(level=level, handlers=[handler], force=True)
    logging.captureWarnings(True)


class Metrics:
    """Counts and times requests; `text` adds what is known of the studies."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._requests: dict[tuple[str, str, int], int] = defaultdict(int)
        self._buckets: dict[str, list[int]] = defaultdict(lambda: [0] * (len(BUCKETS) + 1))
        self._seconds: dict[str, float] = defaultdict(float)
        self.started = time.time()

    def observe(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count one request; methods that somebody made up are one, since each name would be kept for ever."""
        method = method if method in METHODS else "other"
        with self._lock:
            self._requests[method, route, status] += 1
            self._seconds[route] += seconds
            place = next((i for i, edge in enumerate(BUCKETS) if seconds <= edge), len(BUCKETS))
            self._buckets[route][place] += 1

    def text(self, studies: Iterable[dict[str, Any]]) -> str:
        """Return everything in the Prometheus text format, version 0.0.4."""
        lines = ["# TYPE pdcbo_start_time_seconds gauge", f"pdcbo_start_time_seconds {self.started:.3f}"]
        with self._lock:
            lines.append("# TYPE pdcbo_http_requests_total counter")
            for (method, route, status), count in sorted(self._requests.items()):
                labels = f'method="{method}",route="{_escape(route)}",status="{status}"'
                lines.append(f"pdcbo_http_requests_total{{{labels}}} {count}")
            lines.append("# TYPE pdcbo_http_request_seconds histogram")
            for route, counts in sorted(self._buckets.items()):
                total = 0
                for edge, count in zip([*map(str, BUCKETS), "+Inf"], counts, strict=True):
                    total += count
                    lines.append(f'pdcbo_http_request_seconds_bucket{{route="{_escape(route)}",le="{edge}"}} {total}')
                lines.append(f'pdcbo_http_request_seconds_sum{{route="{_escape(route)}"}} {self._seconds[route]:.6f}')
                lines.append(f'pdcbo_http_request_seconds_count{{route="{_escape(route)}"}} {total}')
        rows = list(studies)
        for name in ("steps", "pending", "events", "running", "fallbacks"):
            lines.append(f"# TYPE pdcbo_study_{name} gauge")
            known = [row for row in rows if name in row]
            lines += [f'pdcbo_study_{name}{{study="{_escape(row["study"])}"}} {row[name]}' for row in known]
        return "\n".join(lines) + "\n"


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
