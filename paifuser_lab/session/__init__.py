"""What a person does with one model: `session` holds it and measures on a worker, `queries` answers
what the views ask.
"""

from __future__ import annotations

from .session import Session

__all__ = [
    "Session",
]
