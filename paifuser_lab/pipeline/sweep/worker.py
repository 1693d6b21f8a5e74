"""A process of a sweep: one run, described on its standard input, its failure reported on its
standard error.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from ...errors import PaifuserError, first_line
from ..notebook import run_notebook

FAILED, STOPPED = 2, 130


def main() -> int:
    """Run the notebook that is asked for."""
    asked = json.load(sys.stdin)
    try:
        run_notebook(
            Path(asked["notebook"]), asked["out"], asked["parameters"], replace=asked["replace"]
        )
    except PaifuserError as error:
        sys.stderr.write(f"{first_line(error)}\n")
        return FAILED
    except KeyboardInterrupt:
        return STOPPED
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
