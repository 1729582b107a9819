"""The two ways things go wrong: what the user gave us, and a computation that broke."""

from __future__ import annotations


class RelcoreError(Exception):
    """Base of every error Relcore raises on purpose. Its text is one sentence a user can act on."""


class InputError(RelcoreError, ValueError):
    """Bad input or usage: names the file, the row, the number found, the number wanted and the next step."""


class RunFailed(RelcoreError, RuntimeError):
    """A run broke off, such as a quantity that became NaN. ``step`` is the last good step."""

    def __init__(self, message: str, step: int = 0):
        super().__init__(message)
        self.step = step
