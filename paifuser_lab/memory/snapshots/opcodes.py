"""Cut a pickle of plain data into pieces; refuse every opcode that could import or call.

The opcodes of numbers, texts, lists, dicts, tuples and back references are known here with the
length of their arguments; nothing else passes. A regular expression walks over runs of them, since
a loop in Python takes a minute for what it does in seconds. The file is never in memory whole.
"""

from __future__ import annotations

import pickletools
import re
from typing import BinaryIO

from ...errors import FileError
from ...progress import Progress

CHUNK_BYTES = 4 << 20
MAX_PIECE_BYTES = 1 << 30
MAX_TEXT_BYTES = 1 << 20
SHORT_TEXT = 40  # bytes of the texts that the regular expression knows
PROTOCOLS = range(2, 6)
MARK, FRAME, STOP = b"(", b"\x95", b"."
LONG_BINPUT, SHORT_BINUNICODE = b"r", b"\x8c"
FRAME_BYTES = 9
# opcodes of a text, and of how many bytes its length is
TEXTS = {SHORT_BINUNICODE: 1, b"X": 4, b"\x8d": 8}
ASKS_FOR_CODE = frozenset(b"cibRo\x81\x82\x83\x84\x92\x93PQ")


def _counted(opcode: bytes, longest: int) -> bytes:
    """A pattern of an opcode whose argument begins with its length in one byte."""
    lengths = (
        re.escape(bytes([count])) + (b".{%d}" % count if count else b"")
        for count in range(longest + 1)
    )
    return opcode + b"(?:" + b"|".join(lengths) + b")"


_SIMPLE = b"|".join(
    (
        rb"j.{4}",
        rb"h.",
        # the only tuples are pairs of numbers: hashing one of nested tuples may never end
        rb"(?:K.|M..|J.{4}|" + _counted(rb"\x8a", 8) + rb"){2}\x86",
        rb"J.{4}",
        rb"[Kq].",
        rb"[N\x88\x89\])}as\x94]",
        rb"M..",
        rb"G.{8}",
        _counted(rb"\x8a", 16),
        _counted(rb"\x8c", SHORT_TEXT),
    )
)
_INNER = rb"\((?:" + _SIMPLE + rb")*+[eu]"
_MIDDLE = rb"\((?:" + _SIMPLE + rb"|" + _INNER + rb")*+[eu]"
RUN = re.compile(rb"(?:" + _SIMPLE + rb"|" + _MIDDLE + rb")*+", re.DOTALL)
ONE = re.compile(rb"(?:" + _SIMPLE + rb")", re.DOTALL)
CLOSERS = frozenset(b"eu")
SIMPLE_CODES = frozenset(b"jJhKqN\x88\x89])}as\x94MG\x8a")
LONGEST = SHORT_TEXT + 2  # bytes of an opcode that the regular expression knows


class Opcodes:
    """A cursor over the opcodes of a file; what it passes over is plain data."""

    def __init__(self, file: BinaryIO, name: str, shown: Progress) -> None:
        self.file, self.name, self.shown = file, name, shown
        self.data, self.at = b"", 0
        self.start = 0  # of the piece that is being cut
        self.passed = 0  # bytes of the file before `data`
        self.parts: list[bytes] = []  # of that piece
        self.aside = 0  # bytes in `parts`
        self.protocol = 0
        self._begin()

    @property
    def offset(self) -> int:
        """The position in the file."""
        return self.passed + self.at

    def peek(self) -> bytes:
        """The next opcode; frames are passed over."""
        while True:
            self._need(1)
            opcode = self.data[self.at : self.at + 1]
            if opcode != FRAME:
                return opcode
            self._need(FRAME_BYTES)
            self._put_aside()
            self.at += FRAME_BYTES
            self.start = self.at

    def take(self, opcode: bytes) -> bool:
        """Pass over the opcode if it is the next one."""
        if self.peek() != opcode:
            return False
        self.at += 1
        return True

    def one(self) -> bytes:
        """Pass over one opcode outside of marked groups; its bytes with its argument."""
        opcode = self.peek()
        self._look_ahead()
        before = self.offset
        if match := ONE.match(self.data, self.at):
            self.at = match.end()
        elif opcode in TEXTS:
            self._text(opcode)
        elif opcode == LONG_BINPUT:
            self._put()
        else:
            if opcode[0] in SIMPLE_CODES:
                self._need(LONGEST)  # raises if the file ends within its argument
            raise self.refused(opcode)
        return self.data[self.at - (self.offset - before) : self.at]

    def group(self) -> bytes:
        """Pass over the rest of a marked group, whose mark was taken; its last opcode."""
        depth = 1
        while True:
            self._need(1)
            match = RUN.match(self.data, self.at)
            self.at = match.end() if match is not None else self.at
            if self.at >= len(self.data):
                continue
            code = self.data[self.at]
            if code in CLOSERS:
                self.at += 1
                depth -= 1
                if not depth:
                    return bytes([code])
            elif code == MARK[0]:
                self.at += 1
                depth += 1
            elif code == FRAME[0]:
                self.peek()
            else:
                self.one()

    def refuse_code(self) -> None:
        """Pass over all that follows; raises where it wants to run code."""
        while self.peek() != STOP:
            if self.take(MARK):
                self.group()
            elif not (self.take(b"e") or self.take(b"u")):
                self.one()

    def begin_piece(self) -> None:
        """Begin a piece at the cursor."""
        self.parts.clear()
        self.start, self.aside = self.at, 0

    def piece(self) -> bytes:
        """The bytes since `begin_piece`, without frames."""
        cut = b"".join([*self.parts, self.data[self.start : self.at]])
        self.begin_piece()
        return cut

    def refused(self, opcode: bytes) -> FileError:
        """The error for an opcode that is not plain data."""
        known = {code.code: code.name for code in pickletools.opcodes}
        named = known.get(opcode.decode("latin-1"), opcode.hex())
        if opcode[0] in ASKS_FOR_CODE:
            return FileError(
                f"{self.name} wants to run code (the pickle opcode {named} at byte {self.offset:,})"
                "; it was refused and nothing of it was executed. A memory snapshot holds only "
                "plain data: get the file anew from torch.cuda.memory._dump_snapshot."
            )
        return FileError(
            f"{self.name} is damaged or no memory snapshot: the pickle opcode {named} at byte "
            f"{self.offset:,} has no place in one; write it with "
            "torch.cuda.memory._dump_snapshot."
        )

    def _begin(self) -> None:
        if not self._more():
            raise FileError(
                f"{self.name} is empty; write it with torch.cuda.memory._dump_snapshot."
            )
        if self.data[:1] != b"\x80" or (len(self.data) > 1 and self.data[1] not in PROTOCOLS):
            raise FileError(
                f"{self.name} is no pickle of protocol {PROTOCOLS[0]} to {PROTOCOLS[-1]}; give a "
                "file of torch.cuda.memory._dump_snapshot, unpacked."
            )
        self._need(2)
        self.protocol = self.data[1]
        self.at = self.start = 2

    def _text(self, opcode: bytes) -> None:
        width = TEXTS[opcode]
        self._need(1 + width)
        count = int.from_bytes(self.data[self.at + 1 : self.at + 1 + width], "little")
        if count > MAX_TEXT_BYTES:
            raise FileError(
                f"{self.name} is damaged: a text of {count:,} bytes begins at byte "
                f"{self.offset:,}; write the snapshot anew."
            )
        self._need(1 + width + count)
        self.at += 1 + width + count

    def _put(self) -> None:
        self._need(5)
        index = int.from_bytes(self.data[self.at + 1 : self.at + 5], "little")
        # Python's unpickler allocates a table of twice this size
        if index > self.offset:
            raise FileError(
                f"{self.name} is damaged: back reference {index:,} at byte {self.offset:,}; write "
                "the snapshot anew."
            )
        self.at += 5

    def _need(self, count: int) -> None:
        while len(self.data) - self.at < count:
            if not self._more():
                raise FileError(
                    f"{self.name} was cut short: it ends after {self.passed + len(self.data):,} "
                    "bytes in the middle of its data; copy or write it again."
                )

    def _look_ahead(self) -> None:
        while len(self.data) - self.at < LONGEST and self._more():
            pass

    def _more(self) -> bool:
        """Read on; what was passed over of the piece that is being cut is put aside."""
        chunk = self.file.read(CHUNK_BYTES)
        self._put_aside()
        if self.aside > MAX_PIECE_BYTES:
            raise FileError(
                f"{self.name} has one list of more than {MAX_PIECE_BYTES:,} bytes; record fewer "
                "events (max_entries of torch.cuda.memory._record_memory_history)."
            )
        self.passed += self.at
        self.data, self.at, self.start = self.data[self.at :] + chunk, 0, 0
        self.shown.advance(len(chunk))
        return bool(chunk)

    def _put_aside(self) -> None:
        self.parts.append(self.data[self.start : self.at])
        self.aside += len(self.parts[-1])
        self.start = self.at
