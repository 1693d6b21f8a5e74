"""How far a measurement can be trusted, and the verdict that it allows."""

from __future__ import annotations

import math
from typing import Literal, NamedTuple, get_args

from .record import Record
from .text import readable_ms, readable_ratio, readable_share

State = Literal["quiet", "busy", "unusable"]
STATES: tuple[State, ...] = get_args(State)  # of a machine, the best first
Word = Literal["", "faster", "slower", "no difference", "not told"]
Tone = Literal["good", "bad", "even", "untold"]

# Beyond these limits the machine was busy; what they let through, `bench trust` measures.
MAX_OTHERS = 0.10  # of the cores' time, by other processes
MAX_WAITED = 0.05  # of the time of a call in which the process had less than one core
MAX_SPREAD = 0.25  # half of the middle 90% of the rounds, over their median
MAX_SLEEPS = 5.0  # of a call; beside another thread's OpenMP pool it sleeps in each operator
ROWS_RANGE = (0.85, 1.15)  # the sum of a profile's rows over the latency
MIN_CLOCK, LEAST_CLOCK = 0.9, 2 / 3  # the clock over its highest: below them, busy and unusable
HOPELESS = (0.5, 2.0)  # an interval that contains both decides nothing at all
MARGIN = 1.25  # on a busy machine an interval beyond it is faster or slower, a closer one is open
WIDEST = 10.0  # times the low end: an end beyond says nothing, and is not shown
UNUSABLE = "unusable"

LABELS: dict[State, str] = {
    "quiet": "Quiet: numbers hold",
    "busy": "Busy: sizes are rough",
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
    sleeps: float | None = None
    rows_share: float | None = None
    clock_share: float | None = None
    is_hopeless: bool = False
    busiest: tuple[BusyProcess, ...] = ()

    @property
    def state(self) -> State:
        """`quiet`: figures hold; `busy`: only large differences hold; `unusable`: none holds."""
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
        return tuple(f"{name} {value}" for name, value, is_beyond in self._figures() if is_beyond)

    @property
    def reasons(self) -> tuple[tuple[str, str], ...]:
        """Each known figure as its name and value; calls that hardly slept are left out."""
        return tuple((name, value) for name, value, _ in self._figures())

    @property
    def sentence(self) -> str:
        """Why figures are rough or unusable, and what to do; '' on a quiet machine."""
        if self.is_quiet:
            return ""
        why = ", ".join(self.disturbances) or "the likely range holds both half and twice the speed"
        who = ", ".join(process.name for process in self.busiest[:2])
        state, effect = (
            ("busy", "sizes are rough and small differences are not told")
            if self.state == "busy"
            else ("too busy to measure", "there is no verdict")
        )
        reasons = f"{why}; {who}" if who else why
        return f"the machine was {state} ({reasons}), so {effect}: {ADVICE}"

    def _figures(self) -> list[tuple[str, str, bool]]:
        """The name and value of each known figure, and whether it is beyond its limits."""
        shares = (
            ("others took", self.others_share, "", -math.inf, MAX_OTHERS),
            ("calls waited", self.waited_share, "", -math.inf, MAX_WAITED),
            ("rounds agree within", self.spread, "± ", -math.inf, MAX_SPREAD),
            ("layers add up to", self.rows_share, "", *ROWS_RANGE),
            ("the clock ran at", self.clock_share, "", MIN_CLOCK, math.inf),
        )
        figures = [
            (name, f"{sign}{readable_share(round(share, 3))}", share < least or share > most)
            for name, share, sign, least, most in shares
            if share is not None
        ]
        if self.sleeps is not None and self.sleeps > MAX_SLEEPS:
            figures.append(("each call slept", f"{self.sleeps:.0f} times", True))
        return figures


def worse(*qualities: Quality | None) -> Quality | None:
    """That of the busiest machine, among those that are known."""
    known = [quality for quality in qualities if quality is not None]
    return max(known, key=lambda quality: STATES.index(quality.state), default=None)


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
    """The only place that decides between faster, slower and no difference: by the interval. On a
    busy machine the interval has to be beyond a margin, and "no difference" is never told.
    """
    if now_ms is None:
        return Verdict("", "even", "not measured")
    if before_ms is None or speedup is None or interval is None:
        return Verdict("", "even", f"{readable_ms(now_ms)} ms")
    word, tone = _decided(interval, quality)
    took = times(before_ms, speedup)
    return Verdict(word, tone, f"{took} · {effect(word, speedup, interval, quality)}")


def times(before_ms: float, speedup: float) -> str:
    """The latency before and after, by the speed-up, which is known better than either."""
    return f"{readable_ms(before_ms)} → {readable_ms(before_ms / speedup)} ms"


def effect(
    word: Word, speedup: float, interval: tuple[float, float], quality: Quality | None = None
) -> str:
    """The speed-up with its likely range in words, such as '4.9 × faster · likely 4.3–5.4'."""
    if word == "slower":
        speedup, interval = 1 / speedup, (1 / interval[1], 1 / interval[0])
    likely = readable_interval(interval, like=speedup)
    if word in ("faster", "slower"):
        return f"{sign(word, quality)}{readable_ratio(speedup)} × {word} · likely {likely}"
    if word == "no difference":
        return f"no difference · likely {likely} ×"
    is_busy = quality is not None and not quality.is_quiet and not is_useless(interval)
    reason = "measured on a busy machine" if is_busy else "too uncertain"
    if interval[0] == interval[1]:
        return f"cannot be told: {readable_ratio(speedup)} ×, of a single round"
    return f"cannot be told: {reason if likely == UNUSABLE else f'{likely} ×, {reason}'}"


def sign(word: Word, quality: Quality | None) -> str:
    """What stands before a speed-up of which the size is rough."""
    is_busy = quality is not None and not quality.is_quiet
    return "≈ " if word == "not told" or is_busy else ""


def readable_interval(interval: tuple[float, float], like: float = 1.0) -> str:
    """'4.3–5.4', in the decimals of a speed-up `like` it; if too wide, 'over 1.3' or 'unusable'."""
    low, high = interval
    first, last = (readable_ratio(end, like=like) for end in interval)
    if is_usable(interval):
        return f"{first}–{last}"
    return f"over {first}" if low > 1 else f"under {last}" if high < 1 else UNUSABLE


def is_usable(interval: tuple[float, float]) -> bool:
    """Whether the two ends of an interval are near enough to be figures."""
    low, high = interval
    return low > 0 and high <= WIDEST * low


def is_useless(interval: tuple[float, float]) -> bool:
    """Whether an interval contains both half and twice the speed."""
    return interval[0] <= HOPELESS[0] and interval[1] >= HOPELESS[1]


def word_for(interval: tuple[float, float], quality: Quality | None) -> Word:
    """Faster, slower, no difference, or not told."""
    return _decided(interval, quality)[0]


def _decided(interval: tuple[float, float], quality: Quality | None) -> tuple[Word, Tone]:
    low, high = interval
    state = "quiet" if quality is None else quality.state
    is_of_one_round = low == high
    if is_of_one_round or is_useless(interval) or state == "unusable":
        return "not told", "untold"
    margin = MARGIN if state == "busy" else 1.0
    if low > margin:
        return "faster", "good"
    if high < 1 / margin:
        return "slower", "bad"
    return ("not told", "untold") if state == "busy" else ("no difference", "even")
