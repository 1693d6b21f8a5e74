"""The figures in README.md and docs/, generated from the records in docs/measured.

A page marks the place of a block of measured text with `<!-- measured:NAME -->` and
`<!-- /measured -->`; the text between them is generated from the records alone. The Markdown files
beside this one have a template between the same markers, whose holes are a record's fields. A block
without a record names the command that measures it. A table of more than a dozen rows is shown by a
page of its own, docs/measured/NAME.md, and linked from the others.

What git says of changes since a measurement depends on the checkout, so `make figures` writes it
under a block, and a page keeps it until the next time.

sources   the records that each block shows
summary   the one table of the README
"""

from __future__ import annotations

import re
import textwrap
from pathlib import Path
from statistics import fmean
from typing import Annotated, Any

import typer
from jinja2 import Environment, StrictUndefined

from paifuser_lab.bench import text
from paifuser_lab.bench.header import DIRTY, Header, git
from paifuser_lab.errors import FileError
from paifuser_lab.records import Comparison, Measurement, counted, readable_bytes
from paifuser_lab.records.table import table_of

from ..measured import COMMANDS, ROOMS, Records
from ..memory import threads_of
from ..parallel import PIPELINES, readable_losses
from ..precision import bare
from ..stream import BATCHING, OVERHEADS
from .sources import records_of, shown_of
from .summary import speedups

WIDTH = 120
MOST_ROWS = 12  # of a table between paragraphs
CODE = re.compile(r"`[^`]*`")
BLOCK = re.compile(
    r"<!-- measured:(?P<name>[\w-]+) -->\n(?P<text>.*?)<!-- /measured -->", re.DOTALL
)
SENTENCE = re.compile(r"^_Measured before .*_\n", re.MULTILINE)


def bench(
    root: Annotated[
        Path, typer.Argument(help="The checkout, with README.md, docs/ and docs/measured/.")
    ] = Path(),
    *,
    check: Annotated[
        bool,
        typer.Option("--check", help="Change nothing; fail where a figure is not the record's."),
    ] = False,
) -> None:
    """Write the measured figures of README.md and docs/*.md from the records in docs/measured."""
    stale = rewrite(root, check=check)
    for page, names in stale.items():
        state = "differs from its records in" if check else "written:"
        typer.echo(f"{page.name} {state} {', '.join(names)}", err=check)
    if stale and check:
        typer.echo("`make figures` writes them.", err=True)
        raise typer.Exit(1)
    if not stale:
        typer.echo("Every page agrees with its records.")


def rewrite(root: Path, *, check: bool = False) -> dict[Path, list[str]]:
    """Write every page's blocks from docs/measured; page → the blocks that differed.

    With `check` nothing is written.
    """
    stale = {}
    for page in pages_of(root):
        written = page.read_text(encoding="utf-8")
        folder = root / "docs" / "measured"
        rendered = render(written, folder, None if check else root, whole=page.parent == folder)
        if names := differing(written, rendered):
            stale[page] = names
            if not check:
                page.write_text(rendered, encoding="utf-8")
    return stale


def pages_of(root: Path) -> list[Path]:
    """README.md and the pages in docs/, in alphabetical order."""
    written = [page for page in (root / "docs").rglob("*.md") if page.parent.name != "reference"]
    return [root / "README.md", *sorted(written)]


def blocks_of(written: str) -> dict[str, str]:
    """The blocks in a text: name → the text between its markers."""
    return {match["name"]: match["text"] for match in BLOCK.finditer(written)}


def differing(written: str, rendered: str) -> list[str]:
    """The names of the blocks that differ from the rendered text."""
    current = blocks_of(written)
    return [name for name, body in blocks_of(rendered).items() if current.get(name) != body]


def render(written: str, folder: Path, root: Path | None = None, *, whole: bool = True) -> str:
    """The text with every block written from the records in a folder.

    With the checkout's `root` a block says what has changed since; without, it keeps its sentence.
    Without `whole` long tables are links to the page that shows them.
    """
    records = Records(folder)

    def write(match: re.Match[str]) -> str:
        name = match["name"]
        if name not in TEMPLATES:
            raise FileError(
                f"A page has a block '{name}' that is not defined; there are "
                f"{', '.join(TEMPLATES)}."
            )
        body = block(name, records) if whole else _without_long_tables(name, records)
        below = "" if name == "missing" else _below(name, records, match["text"], root)
        return f"<!-- measured:{name} -->\n{body}\n{below}<!-- /measured -->"

    return BLOCK.sub(write, written)


def block(name: str, records: Records) -> str:
    """The text of a block, without what is below it."""
    shown = ""
    if name == "missing" or any(map(records.has, shown_of(name))):
        record = records.get(records_of(name)[0])
        shown = TEMPLATES[name].render(record=record, records=records)
    chunks = re.split(r"\n\s*\n", shown.strip())
    body = "\n\n".join(_filled(chunk.strip()) for chunk in chunks if chunk.strip())
    command = COMMANDS.get(records_of(name)[0])
    return body or f"Not measured yet: `{command}` measures it."


def _without_long_tables(name: str, records: Records) -> str:
    """The text of a block with a link in place of its long tables."""
    chunks = block(name, records).split("\n\n")
    kept = [chunk for chunk in chunks if not is_long(chunk)]
    link = [f"All rows: [measured/{name}](measured/{name}.md)."] if kept != chunks else []
    return "\n\n".join([*kept, *link])


def is_long(chunk: str) -> bool:
    """Whether a paragraph is a table that has a page of its own."""
    return chunk.startswith("|") and chunk.count("\n") - 1 > MOST_ROWS


def _filled(chunk: str) -> str:
    """A paragraph or list in lines of the pages' width, code in one line; tables as they are."""
    if chunk.startswith("|"):
        return chunk
    if len(items := re.split(r"\n(?=\* )", chunk)) > 1:
        return "\n".join(map(_filled, items))
    indent = "  " if chunk.startswith("* ") else ""
    words = CODE.sub(lambda code: code[0].replace(" ", "\0"), " ".join(chunk.split()))
    look: Any = {"break_long_words": False, "break_on_hyphens": False}
    filled = textwrap.fill(words, WIDTH, subsequent_indent=indent, **look)
    return filled.replace("\0", " ")


def _below(name: str, records: Records, before: str, root: Path | None) -> str:
    """Under a block: when and with what it was measured, and what has changed since."""
    names = [name for name in records_of(name) if records.has(name)]
    headers = [header for name in names if (header := records.header(name))]
    known = SENTENCE.search(before) if names else None
    since = None if root is None else _changed(root, records, names)
    since = (known[0] if known else "") if since is None else since
    measured = _filled(_measured_on(headers))
    lines = f"{measured}\n{since}" if measured else since
    return f"\n{lines}" if lines else ""


def _changed(root: Path, records: Records, names: list[str]) -> str | None:
    """How many commits changed what these records measured; '' for none, None where git cannot
    tell: no checkout, or a shallow one.
    """
    commits: set[str] = set()
    rooms: set[str] = set()
    for name in names:
        since = _commit(root, records, name)
        for room in ROOMS[name]:
            found = git(root, "log", "--format=%h", f"{since}..HEAD", "--", f"paifuser_lab/{room}")
            if found is None:
                return None
            commits.update(found.split())
            rooms.update([room] if found else [])
    if not commits:
        return ""
    changed = text.listed([f"`{room}`" for room in sorted(rooms)])
    return f"_Measured before {counted(len(commits), 'commit')} to {changed}._\n"


def _commit(root: Path, records: Records, name: str) -> str | None:
    """The commit that was measured; for a record without one that in which it was recorded."""
    header = records.header(name)
    if header and header.commit:
        return header.commit.removesuffix(DIRTY)
    if git(root, "rev-parse", "--is-shallow-repository") != "false":
        return None
    return git(root, "log", "-1", "--format=%h", "--", str(records.path(name).resolve())) or None


def _measured_on(headers: list[Header]) -> str:
    """When, at which commits and with which versions a block's records were measured."""
    if not headers:
        return ""
    dates = dict.fromkeys(header.date for header in headers)
    commits = dict.fromkeys(header.commit for header in headers if header.commit)
    versions = dict.fromkeys(pair for header in headers for pair in header.versions.items())
    at = f" at {text.listed(list(commits))}" if commits else ""
    return f"Measured on {text.listed(list(dates))}{at} with {', '.join(map(' '.join, versions))}."


def table(rows: list[dict[str, str]]) -> str:
    """A Markdown table of cells by header."""
    cells = [list(rows[0]), ["---"] * len(rows[0]), *(list(row.values()) for row in rows)]
    return "\n".join(
        "| " + " | ".join(cell.strip().replace("|", "\\|") for cell in line) + " |"
        for line in cells
    )


def named(comparison: Comparison) -> dict[str, Measurement]:
    """The rows with a metric, by name."""
    return {row.name: row for row in comparison.rows if row.metric is not None}


def _templates() -> dict[str, Any]:
    environment = Environment(undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters |= {
        name: getattr(text, name)
        for name in ("number", "ratio", "times", "power", "percent", "listed", "minus", "megabytes")
    }
    environment.filters |= {
        "bytes": readable_bytes, "threads": threads_of, "losses": readable_losses, "bare": bare,
        "spec": format, "mean": fmean, "named": named,
    }  # fmt: skip
    environment.globals |= {
        "table": table, "table_of": table_of, "speedups": speedups, "commands": COMMANDS,
        "PIPELINES": PIPELINES, "BATCHING": BATCHING, "OVERHEADS": OVERHEADS,
    }  # fmt: skip
    return {
        match["name"]: environment.from_string(match["text"])
        for file in sorted(Path(__file__).parent.glob("*.md"))
        for match in BLOCK.finditer(file.read_text(encoding="utf-8"))
    }


TEMPLATES = _templates()
