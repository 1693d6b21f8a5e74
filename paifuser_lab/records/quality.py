"""How far a measurement can be trusted, and the verdict that it allows."""

from __future__ import annotations

from typing import Literal, NamedTuple

from .record import Record
from .text import readable_ms, readable_ratio, readable_share

State = Literal["quiet", "busy", "unusable"]
Word = Literal["", "faster", "slower", "no difference", "not told"]
Tone = Literal["good", "bad", "even", "untold"]

# Beyond these limits the machine was busy; what they let through, `bench trust` measures.
MAX_OTHERS = 0.10  # of the cores' time, by other processes
MAX_WAITED = 0.05  # of the time of a call in which the process had less than one core
MAX_SPREAD = 0.25  # half of the middle 90% of the rounds, over their median
ROWS_RANGE = (0.85, 1.15)  # the sum of a profile's rows over the latency
MIN_CLOCK, LEAST_CLOCK = 0.9, 2 / 3  # the clock over its highest: below them, busy and unusable
HOPELESS = (0.5, 2.0)  # an interval that contains both decides nothing at all

LABELS: dict[State, str] = {
    "quiet": "Quiet: numbers hold",
    "busy": "Busy: the verdict waits",
    "unusable": "Unusable: measure again",
}
ADVICE = "wait until the machine is quiet, then measure again"


class BusyProcess(Record):
    """Another program that used the cores, and how many of them."""

    name: str
    cores: float


class Quality(Record):
    """How quiet the machine was during a measurement; a figure that is not known is None."""

    others_share: float | None = None
    waited_share: float | None = None
    spread: float | None = None
    rows_share: float | None = None
    clock_share: float | None = None
    is_hopeless: bool = False
    busiest: tuple[BusyProcess, ...] = ()

    @property
    def state(self) -> State:
        """`quiet`: a verdict may be given; `busy`: it waits; `unusable`: no figure holds."""
        if self.is_hopeless or (self.clock_share is not None and self.clock_share < LEAST_CLOCK):
            return "unusable"
        return "busy" if self.disturbances else "quiet"

    @property
    def is_quiet(self) -> bool:
        return self.state == "quiet"

    @property
    def label(self) -> str:
        """The state in words."""
        return LABELS[self.state]

    @property
    def disturbances(self) -> tuple[str, ...]:
        """The figures that are beyond their limits, as phrases; none on a quiet machine."""
        low, high = ROWS_RANGE
        checks = (
            (self.others_share is not None and self.others_share > MAX_OTHERS, "others"),
            (self.waited_share is not None and self.waited_share > MAX_WAITED, "waited"),
            (self.spread is not None and self.spread > MAX_SPREAD, "spread"),
            (self.rows_share is not None and not low <= self.rows_share <= high, "rows"),
            (self.clock_share is not None and self.clock_share < MIN_CLOCK, "clock"),
        )
        phrases = {name: f"{text} {value}" for name, text, value in self._phrases()}
        return tuple(phrases[name] for is_beyond, name in checks if is_beyond)

    @property
    def reasons(self) -> tuple[tuple[str, str], ...]:
        """Each known figure as its name and its value, in words."""
        return tuple((text, value) for _, text, value in self._phrases())

    @property
    def sentence(self) -> str:
        """Why there is no verdict and what to do; '' on a quiet machine."""
        if self.is_quiet:
            return ""
        why = ", ".join(self.disturbances) or "the likely range holds both half and twice the speed"
        who = ", ".join(process.name for process in self.busiest[:2])
        return (
            f"the machine was {'busy' if self.state == 'busy' else 'too busy to measure'} ({why}"
            f"{f'; {who}' if who else ''}), so there is no verdict: {ADVICE}"
        )

    def _phrases(self) -> list[tuple[str, str, str]]:
        figures = (
            ("others", "others took", self.others_share, ""),
            ("waited", "calls waited", self.waited_share, ""),
            ("spread", "rounds agree within", self.spread, "± "),
            ("rows", "layers add up to", self.rows_share, ""),
            ("clock", "the clock ran at", self.clock_share, ""),
        )
        return [
            (name, text, f"{sign}{readable_share(round(value, 3))}")
            for name, text, value, sign in figures
            if value is not None
        ]


class Verdict(NamedTuple):
    """Whether a change made a model faster, in a word, in a tone for colours, and in a sentence."""

    word: Word
    tone: Tone
    sentence: str


def verdict(
    before_ms: float | None,
    now_ms: float | None,
    speedup: float | None,
    interval: tuple[float, float] | None,
    quality: Quality | None = None,
) -> Verdict:
    """The only place that decides between faster, slower and no difference: by the interval, if
    the machine was quiet (or nobody recorded whether it was).
    """
    if now_ms is None:
        return Verdict("", "even", "not measured")
    if before_ms is None or speedup is None or interval is None:
        return Verdict("", "even", f"{readable_ms(now_ms)} ms")
    word, tone = _decided(interval, quality)
    took = f"{readable_ms(before_ms)} → {readable_ms(now_ms)} ms"
    return Verdict(word, tone, f"{took} · {effect(word, speedup, interval, quality)}")


def effect(
    word: Word, speedup: float, interval: tuple[float, float], quality: Quality | None = None
) -> str:
    """The speed-up with its likely range in words, such as '4.9 × faster · likely 4.3–5.4'."""
    if word == "slower":
        speedup, interval = 1 / speedup, (1 / interval[1], 1 / interval[0])
    low, high = (readable_ratio(end, like=speedup) for end in interval)
    if word in ("faster", "slower"):
        return f"{readable_ratio(speedup)} × {word} · likely {low}–{high}"
    if word == "no difference":
        return f"no difference · likely {low}–{high} ×"
    is_busy = quality is not None and not quality.is_quiet and not is_useless(interval)
    reason = "measured on a busy machine" if is_busy else "too uncertain"
    if interval[0] == interval[1]:
        return f"cannot be told: {low} ×, of a single round"
    return f"cannot be told: {low}–{high} ×, {reason}"


def is_useless(interval: tuple[float, float]) -> bool:
    """Whether an interval contains both half and twice the speed."""
    return interval[0] <= HOPELESS[0] and interval[1] >= HOPELESS[1]


def word_for(interval: tuple[float, float], quality: Quality | None) -> Word:
    """Faster, slower, no difference, or not told."""
    return _decided(interval, quality)[0]


def _decided(interval: tuple[float, float], quality: Quality | None) -> tuple[Word, Tone]:
    has_no_width = interval[0] == interval[1]  # of a single round
    if has_no_width or is_useless(interval) or (quality is not None and not quality.is_quiet):
        return "not told", "untold"
    if interval[0] > 1:
        return "faster", "good"
    return ("slower", "bad") if interval[1] < 1 else ("no difference", "even")
