"""`python -m paifuser_lab.cli`."""

from __future__ import annotations

from .program import main

if __name__ == "__main__":
    main()
