"""Text of a model and its variants: tokens a second, size against perplexity, and the texts."""

from __future__ import annotations

from typing import Literal

from ..records import GenerationComparison, counted
from ..records.generation import GenerationRow, Phase
from ..records.text import readable_bytes, readable_ms, readable_rate
from .picture import Axis, Panel, Picture, Tips

ROW_HEIGHT = 26  # pixels of the page
TONES = {"good": "good", "bad": "bad", "even": "main"}
PARTS = " ▸ "  # before a text's first token that is not the original's


def picture(compared: GenerationComparison) -> Picture:
    """A bar per model and runtime for a token and for the prompt; longer is faster."""
    rows = [row for row in compared.rows if row.decode is not None]
    panels = (
        _bars(compared, rows, "tokens a second", "decode"),
        _bars(compared, rows, "prompt tokens a second", "prefill"),
    )
    sized = [row for row in rows if row.size_bytes]
    return Picture(
        title=compared.title,
        label=f"{counted(len(rows), 'row')}, the original first",
        rows=(
            *((panel,) for panel in panels if rows),
            *([(_sizes(sized),)] if sized else []),
        ),
        items=_texts(compared, rows),
        tables=(compared.as_table("generation"),),
        note=f"{PARTS.strip()} is where a text parts from the original's",
    )


def _name(row: GenerationRow) -> str:
    return f"{row.name} · {row.engine}"


def _bars(
    compared: GenerationComparison,
    rows: list[GenerationRow],
    label: str,
    phase: Literal["prefill", "decode"],
) -> Panel:
    phases = [getattr(row, phase) for row in rows]
    rates = [0.0 if phase is None else phase.tokens_per_s for phase in phases]
    names, texts = [_name(row) for row in rows], [_rate(phase) for phase in phases]
    texts[0] = texts[0].partition(" · ")[0]  # of the original there is nothing to compare
    tips = Tips(names, ["" if one is None else f"{readable_ms(one.ms)} ms" for one in phases])
    tones = [_tone(compared, row, phase) for row in rows]
    across = Axis.beside(rates, texts, names, label, "rate")
    height = 46 + ROW_HEIGHT * len(rows)
    return Panel.bars(names, rates, texts, across, height, tone=tones, tips=tips)


def _tone(
    compared: GenerationComparison, row: GenerationRow, phase: Literal["prefill", "decode"]
) -> str:
    if row is compared.baseline:
        return "soft"
    return TONES.get(compared.verdict(row, phase).tone, "soft")


def _rate(phase: Phase | None) -> str:
    if phase is None:
        return ""
    faster = "" if phase.interval is None else f" · {phase.speedup:.2f} ×"
    return f"{readable_rate(phase.tokens_per_s)}{faster}"


def _sizes(rows: list[GenerationRow]) -> Panel:
    """A bar per model and runtime for the bytes of what it runs; shorter is smaller."""
    sizes = [float(row.size_bytes or 0) for row in rows]
    names, texts = [_name(row) for row in rows], [_size(row) for row in rows]
    across = Axis.beside(sizes, texts, names, "size of the weights", "bytes")
    return Panel.bars(names, sizes, texts, across, 46 + ROW_HEIGHT * len(rows))


def _size(row: GenerationRow) -> str:
    knows = "" if row.perplexity is None else f" · perplexity {row.perplexity:.2f}"
    return f"{readable_bytes(row.size_bytes or 0)}{knows}"


def _texts(
    compared: GenerationComparison, rows: list[GenerationRow]
) -> tuple[tuple[str, str], ...]:
    """The prompt, and each different text: whose it is, and where it parts from the original's."""
    prompt = (("the prompt", compared.prompt),) if compared.prompt else ()
    if len(rows) == 2:
        at = rows[1].parts_at
        return *prompt, *((_name(row), _parted(row.text, at)) for row in rows if row.text)
    names, places = dict[str, list[str]](), dict[str, int | None]()
    for row in rows:
        names.setdefault(row.text, []).append(_name(row))
        places[row.text] = row.parts_at
    texts = ((_named(whose), _parted(text, places[text])) for text, whose in names.items() if text)
    return *prompt, *texts


def _named(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"


def _parted(text: str, at: int | None) -> str:
    return text if at is None else f"{text[:at].rstrip()}{PARTS}{text[at:].lstrip()}"
