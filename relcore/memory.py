"""How much memory this machine, or the container it runs in, has left."""

from __future__ import annotations

from pathlib import Path

import psutil

_CGROUP = Path("/sys/fs/cgroup")


def available() -> int:
    """Bytes that can be taken without swapping: what the machine has free, or what a container's limit leaves."""
    free = psutil.virtual_memory().available
    try:
        most, now = (int((_CGROUP / f"memory.{which}").read_text()) for which in ("max", "current"))
        stat = dict(line.split() for line in (_CGROUP / "memory.stat").read_text().splitlines())
        free = min(free, max(most - now + int(stat.get("inactive_file", 0)), 0))  # cached files make room
    except (OSError, ValueError):  # no container, or "max"
        pass
    return free


def as_text(size: float) -> str:
    """``900 MB``, ``1.5 GB``, ``2.0 TB``: powers of 1,000, as the file managers show them."""
    if size < 1e9:
        return f"{max(size / 1e6, 0.1):,.0f} MB" if size >= 1e6 else f"{size / 1e3:,.0f} kB"
    return f"{size / 1e9:,.1f} GB" if size < 1e12 else f"{size / 1e12:,.1f} TB"
