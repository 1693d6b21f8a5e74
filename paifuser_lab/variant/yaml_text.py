"""YAML as plain data with the line of every value: no objects, aliases or duplicate keys. Built on
PyYAML's scanner.

PyYAML alone reads 1e-3 as a string and `no` as a boolean, lets the last of two equal keys win, and
expands an alias bomb.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from textwrap import shorten
from typing import Any

import yaml

from ..errors import RecipeError

Path = tuple[str | int, ...]
Lines = dict[Path, int]
LIMIT_CHARACTERS = 1 << 20
MAX_DEPTH = 32
_BOOL = "tag:yaml.org,2002:bool"
_INT = "tag:yaml.org,2002:int"
_FLOAT = "tag:yaml.org,2002:float"
_PLAIN_TAGS = tuple(
    f"tag:yaml.org,2002:{kind}" for kind in ("str", "int", "float", "bool", "null", "map", "seq")
)


class _Loader(yaml.SafeLoader):
    """The safe loader with the scalars of YAML 1.2."""


class _Dumper(yaml.SafeDumper):
    """The safe dumper that quotes what this loader would not read as text."""


_NUMBER = re.compile(
    r"^[-+]?(?:\d+\.\d*|\.\d+|\d+)(?:[eE][-+]?\d+)?$|^[-+]?\.(?:inf|Inf|INF)$|^\.(?:nan|NaN|NAN)$"
)
for _side in (_Loader, _Dumper):
    _side.yaml_implicit_resolvers = {
        first: [
            (tag, pattern)
            for tag, pattern in resolvers
            if tag in _PLAIN_TAGS and tag not in (_BOOL, _INT, _FLOAT)
        ]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }
    _side.add_implicit_resolver(
        _BOOL, re.compile(r"^(?:true|True|TRUE|false|False|FALSE)$"), list("tTfF")
    )
    _side.add_implicit_resolver(_INT, re.compile(r"^[-+]?\d+$"), list("-+0123456789"))
    _side.add_implicit_resolver(_FLOAT, _NUMBER, list("-+0123456789."))


def _quoted(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    """Quote unprintable text: PyYAML would write some line breaks bare and read them as spaces."""
    return dumper.represent_scalar(
        "tag:yaml.org,2002:str", text, style=None if text.isprintable() else '"'
    )


_Dumper.add_representer(str, _quoted)


def parse(text: str) -> tuple[Any, Lines]:
    """Parse a text into plain data and the line (from 1) of each value, by the value's path."""
    if len(text) > LIMIT_CHARACTERS:
        raise RecipeError(
            f"The text has {len(text):,} characters, past the limit of {LIMIT_CHARACTERS:,}; is it "
            "a recipe?"
        )
    try:
        _refuse_aliases(text)
        node = yaml.compose(text, Loader=_Loader)
        lines: Lines = {}
        return (None if node is None else _build(node, (), lines, text)), lines
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise error_at(
            text, mark.line + 1 if mark else 1, f"this is not YAML: {error.problem}"
        ) from error
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise error_at(text, line, f"this is not YAML: {error.reason}") from error


def dump(data: Any, *, flow: bool = False) -> str:
    """Plain data as text that `parse` reads back; `flow` puts it on one line, in braces."""
    return str(
        yaml.dump(
            data,
            Dumper=_Dumper,
            default_flow_style=flow,
            sort_keys=False,
            allow_unicode=True,
            width=float("inf"),
        )
    ).strip()


def error_at(text: str, line: int, problem: str) -> RecipeError:
    """An error whose message starts with the number and text of the line."""
    lines = text.splitlines()
    quoted = shorten(lines[line - 1], 120, placeholder=" …") if 0 < line <= len(lines) else ""
    problem = " ".join(problem.splitlines())  # a name in it may have several
    return RecipeError(f"Line {line}: `{quoted}`: {problem.rstrip('.')}.")


def _refuse_aliases(text: str) -> None:
    depth = 0
    for event in yaml.parse(text, Loader=_Loader):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(
            event, yaml.CollectionEndEvent
        )
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
            raise error_at(
                text,
                _line(event),
                "anchors and aliases are not used in recipes; write the value out",
            )
        if depth > MAX_DEPTH:
            raise error_at(text, _line(event), f"nested deeper than {MAX_DEPTH} levels")


def _line(event: yaml.Event) -> int:
    return event.start_mark.line + 1 if event.start_mark else 1


def _build(node: yaml.Node, path: Path, lines: Lines, text: str) -> Any:
    line = node.start_mark.line + 1
    lines[path] = line
    if node.tag not in _PLAIN_TAGS:
        raise error_at(
            text, line, f"the tag {node.tag} would make an object; recipes hold plain values"
        )
    if isinstance(node, yaml.SequenceNode):
        return [_build(item, (*path, index), lines, text) for index, item in enumerate(node.value)]
    if isinstance(node, yaml.MappingNode):
        return _build_mapping(node, path, lines, text)
    try:
        return _PLAIN[node.tag](node.value)
    except (ValueError, KeyError) as error:
        raise error_at(
            text, line, f"{node.tag.rpartition(':')[2]} cannot hold this value"
        ) from error


def _build_mapping(node: yaml.MappingNode, path: Path, lines: Lines, text: str) -> dict[str, Any]:
    built: dict[str, Any] = {}
    for key_node, value_node in node.value:
        if not isinstance(key_node, yaml.ScalarNode) or key_node.tag not in _PLAIN_TAGS:
            raise error_at(text, key_node.start_mark.line + 1, "a key is a name")
        key = key_node.value
        if key in built:
            raise error_at(text, key_node.start_mark.line + 1, f"the key '{key}' is there twice")
        built[key] = _build(value_node, (*path, key), lines, text)
        lines[(*path, key)] = key_node.start_mark.line + 1
    return built


_PLAIN: dict[str, Callable[[str], Any]] = {
    "tag:yaml.org,2002:str": str,
    "tag:yaml.org,2002:null": lambda value: None,
    _BOOL: lambda value: {"true": True, "false": False}[value.lower()],
    _INT: int,
    _FLOAT: lambda value: float(re.sub(r"\.(?=inf|nan)", "", value.lower())),
}
