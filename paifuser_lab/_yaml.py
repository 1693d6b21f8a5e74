"""YAML as plain data with the line of every value: no objects, no aliases, no key twice. Stands on PyYAML's scanner.

PyYAML alone reads 1e-3 as a string and `no` as a boolean, lets the last of two equal keys win, and expands an alias bomb.
"""

from __future__ import annotations

import re
from typing import Any

import yaml

from .errors import RecipeError

Path = tuple[str | int, ...]
Lines = dict[Path, int]
LIMIT_CHARACTERS = 1 << 20
DEEPEST = 32
_BOOL = "tag:yaml.org,2002:bool"
_FLOAT = "tag:yaml.org,2002:float"
_PLAIN_TAGS = tuple(f"tag:yaml.org,2002:{kind}" for kind in ("str", "int", "float", "bool", "null", "map", "seq"))


class _Loader(yaml.SafeLoader):
    """The safe loader with the scalars of YAML 1.2."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag in _PLAIN_TAGS and tag not in (_BOOL, _FLOAT)]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver(_BOOL, re.compile(r"^(?:true|True|TRUE|false|False|FALSE)$"), list("tTfF"))
_NUMBER = re.compile(r"^[-+]?(?:\d+\.\d*|\.\d+|\d+)(?:[eE][-+]?\d+)?$|^[-+]?\.(?:inf|Inf|INF)$|^\.(?:nan|NaN|NAN)$")
_Loader.add_implicit_resolver(_FLOAT, _NUMBER, list("-+0123456789."))


def parse(text: str) -> tuple[Any, Lines]:
    """Read a text and give its data, and for the path to each value the line it stands on (from 1)."""
    if len(text) > LIMIT_CHARACTERS:
        raise RecipeError(f"The text has {len(text):,} characters, past the limit of {LIMIT_CHARACTERS:,}; is it a recipe?")
    loader = _Loader(text)
    try:
        _refuse_aliases(text)
        node = loader.get_single_node()
        lines: Lines = {}
        return (None if node is None else _build(loader, node, (), lines, text)), lines
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise RecipeError(at_line(text, mark.line + 1 if mark else 1, f"this is not YAML: {error.problem}")) from error
    except yaml.YAMLError as error:
        raise RecipeError(f"This is not YAML: {error}.") from error
    finally:
        loader.dispose()


def at_line(text: str, line: int, problem: str) -> str:
    """A problem with the line it was found on, quoted."""
    lines = text.splitlines()
    quoted = lines[line - 1].strip() if 0 < line <= len(lines) else ""
    return f"Line {line}: `{quoted}`: {problem.rstrip('.')}."


def _refuse_aliases(text: str) -> None:
    depth = 0
    for event in yaml.parse(text, Loader=_Loader):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
            raise RecipeError(at_line(text, _line(event), "anchors and aliases are not used in recipes; write the value out"))
        if depth > DEEPEST:
            raise RecipeError(at_line(text, _line(event), f"nested deeper than {DEEPEST} levels"))


def _line(event: yaml.Event) -> int:
    return event.start_mark.line + 1 if event.start_mark else 1


def _build(loader: _Loader, node: yaml.Node, path: Path, lines: Lines, text: str) -> Any:
    line = node.start_mark.line + 1
    lines[path] = line
    if node.tag not in _PLAIN_TAGS:
        raise RecipeError(at_line(text, line, f"the tag {node.tag} would make an object; recipes hold plain values"))
    if isinstance(node, yaml.SequenceNode):
        return [_build(loader, item, (*path, index), lines, text) for index, item in enumerate(node.value)]
    if isinstance(node, yaml.MappingNode):
        return _build_mapping(loader, node, path, lines, text)
    return float(node.value) if node.tag == _FLOAT and _is_decimal(node.value) else loader.construct_object(node)


def _build_mapping(loader: _Loader, node: yaml.MappingNode, path: Path, lines: Lines, text: str) -> dict[str, Any]:
    built: dict[str, Any] = {}
    for key_node, value_node in node.value:
        key = str(key_node.value)
        if key in built:
            raise RecipeError(at_line(text, key_node.start_mark.line + 1, f"the key '{key}' stands there twice"))
        built[key] = _build(loader, value_node, (*path, key), lines, text)
        lines[(*path, key)] = key_node.start_mark.line + 1
    return built


def _is_decimal(value: str) -> bool:
    return value.lstrip("+-")[:2].lower() not in (".i", ".n")
