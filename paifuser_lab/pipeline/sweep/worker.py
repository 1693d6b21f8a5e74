"""A process of a sweep: reads one run as JSON from standard input, reports its error on standard
error.
"""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path

from ...errors import PaifuserError, first_line
from ..notebook import run_notebook

FAILED, STOPPED = 2, 130


def main() -> int:
    """Run the notebook and return the exit code."""
    # a sweep in the background of a shell ignores SIGINT, and so would its processes
    signal.signal(signal.SIGINT, signal.default_int_handler)
    job = json.load(sys.stdin)
    try:
        run_notebook(Path(job["notebook"]), job["out"], job["parameters"], replace=job["replace"])
    except PaifuserError as error:
        sys.stderr.write(f"{first_line(error)}\n")
        return FAILED
    except KeyboardInterrupt:
        return STOPPED
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
