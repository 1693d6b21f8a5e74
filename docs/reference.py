"""Writes the pages of docs/reference from the package itself: steps, functions, records, commands
and environment variables. Sphinx calls it before it reads the pages; nothing of it is kept in git.
"""

from __future__ import annotations

import inspect
import io
import re
import textwrap
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer
from pydantic import BaseModel

import paifuser_lab as lab
from paifuser_lab.cli import program
from paifuser_lab.records import Record
from paifuser_lab.steps import Step, step_class, step_names

VARIABLES = {
    "PAIFUSER_CACHE": "The folder of measured ceilings, tuned kernels and everything else that is "
    "kept; without it the user's own cache and data folders.",
    "PAIFUSER_HISTORY": "`0`: what is measured is not kept in the database that `lab.history()` "
    "reads.",
    "PAIFUSER_HARDWARE": "A device that is not here, such as `H100`: `lab.hardware()` and "
    "`lab.plan()` then go by its published figures.",
    "PAIFUSER_PROGRESS": "How progress is shown: `none` shows nothing; by default, `auto`, a bar "
    "where one can be drawn.",
    "PAIFUSER_STATIC": "Anything but `0`: figures and tables are shown in place of widgets.",
    "PAIFUSER_CPU": "`avx2`: steps choose as on a processor with AVX2 alone. Set torch's "
    "`ATEN_CPU_CAPABILITY` and `ONEDNN_MAX_CPU_ISA` to the same.",
    "PAIFUSER_STORE": "The file by which processes of `paifuser_lab.parallel` find each other; the "
    "launcher sets it.",
}


def write(folder: Path) -> None:
    """Write one page of each kind into a folder."""
    pages = {
        "steps": steps(),
        "functions": functions(),
        "records": records(),
        "commands": commands(),
        "variables": variables(),
    }
    folder.mkdir(exist_ok=True)
    for name, text in pages.items():
        path = folder / f"{name}.md"
        if not path.is_file() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")


def steps() -> str:
    """Every step of a recipe with its options."""
    parts = [
        "# Steps of a recipe",
        "A step is its name, or its name with options. Each also takes `why`, a remark for people.",
    ]
    for kind in step_names():
        step = step_class(kind)
        rows = [
            (f"`{name}`", kind_of(schema), default_of(schema), str(schema.get("description", "")))
            for name, schema in options_of(step).items()
            if name != "why"
        ]
        main = f"A bare value sets `{step.main_option}`." if step.main_option else ""
        text = [f"## {kind}", described(step), main, table("option type default meaning", rows)]
        parts += [part for part in text if part]
    return "\n\n".join(parts) + "\n"


def options_of(step: type[Step]) -> dict[str, dict[str, Any]]:
    """The JSON schemas of a step's options, as a recipe names them."""
    properties: dict[str, dict[str, Any]] = step.model_json_schema(by_alias=True)["properties"]
    return properties


def functions() -> str:
    """Every public name of the package with its signature and its docstring."""
    parts = ["# Functions and classes", "All of these are attributes of `paifuser_lab`."]
    for name in sorted(lab.__all__, key=str.lower):
        thing = getattr(lab, name)
        is_record = isinstance(thing, type) and issubclass(thing, Record)
        if is_record and thing is not Record:
            continue  # on the page of records
        parts.append(f"## {name}")
        parts.append(entry(thing, f"lab.{name}"))
        for method, function in methods_of(thing):
            parts.append(entry(function, f"{name}.{method}", is_method=True))
    return "\n\n".join(parts) + "\n"


def methods_of(thing: Any) -> Iterator[tuple[str, Any]]:
    """The public methods and properties that a class of ours defines itself, with docstrings."""
    if not isinstance(thing, type) or issubclass(thing, Record | BaseException):
        return
    for name, member in vars(thing).items():
        member = getattr(member, "__func__", member)
        is_ours = inspect.isfunction(member) or isinstance(member, property)
        if is_ours and not name.startswith("_") and inspect.getdoc(member):
            yield name, member


def entry(thing: Any, name: str, *, is_method: bool = False) -> str:
    """How a function, class, method or property is called, with its docstring."""
    signature = "" if isinstance(thing, property) else signature_of(thing, is_method=is_method)
    return f"```python\n{name}{signature}\n```\n\n{described(thing)}"


def signature_of(thing: Any, *, is_method: bool) -> str:
    """The parameters of a function or class on one line, as a reader would write them."""
    try:
        signature = inspect.signature(thing)
    except ValueError:  # an exception, which Python's own class constructs
        return "()"
    parameters = list(signature.parameters.values())[is_method:]
    text = str(signature.replace(parameters=parameters))
    return re.sub(r"'([\w\[\]., |]+)'(?=[,)= ]|$)", r"\1", text)


def records() -> str:
    """Every record with its fields."""
    parts = [
        "# Records",
        "Results are frozen records. `record.save(path)` writes JSON, and `lab.Record.load(path)` "
        "reads any of them.",
    ]
    for name, record in sorted(Record.kinds.items()):
        if not record.__module__.startswith("paifuser_lab.records"):
            continue
        meanings = field_comments(record)
        rows = [
            (f"`{field}`", f"`{plain(info.annotation)}`", meanings.get(field, ""))
            for field, info in record.model_fields.items()
        ]
        parts += [f"## {name}", described(record), table("field type meaning", rows)]
    return "\n\n".join(part for part in parts if part) + "\n"


def field_comments(record: type[BaseModel]) -> dict[str, str]:
    """The comments beside the fields of a record and of its bases."""
    found: dict[str, str] = {}
    for base in reversed(record.__mro__[:-1]):
        if base.__module__.startswith("paifuser_lab"):
            source = textwrap.dedent(inspect.getsource(base))
            field = ""
            for token in tokenize.generate_tokens(io.StringIO(source).readline):
                if match := re.match(r"    (\w+): ", token.line):
                    field = match[1]
                is_meaning = token.type == tokenize.COMMENT and "# type:" not in token.string
                if is_meaning and not token.line.strip().startswith("#"):
                    found[field] = token.string.lstrip("# ")
    return found


def commands() -> str:
    """Every command with its arguments and options."""
    parts = ["# Commands", "`paifuser-lab COMMAND --help` prints the same."]
    for name, command in command_tree(typer.main.get_command(program.app), "paifuser-lab"):
        rows = [
            (f"`{shown_name(option)}`", shown_default(option), meaning_of(option))
            for option in command.params
            if option.name != "help"
        ]
        text = inspect.cleandoc(command.help or "")
        parts += [f"## {name}", text, table("argument default meaning", rows)]
    return "\n\n".join(part for part in parts if part) + "\n"


def command_tree(command: Any, name: str) -> Iterator[tuple[str, Any]]:
    """A command's subcommands by full name, those without subcommands of their own."""
    for part, child in getattr(command, "commands", {}).items():
        if getattr(child, "commands", None):
            yield from command_tree(child, f"{name} {part}")
        else:
            yield f"{name} {part}", child


def shown_name(option: Any) -> str:
    """An option's flags, or an argument's name."""
    is_option = option.param_type_name == "option"
    return " ".join(option.opts) if is_option else str(option.name)


def meaning_of(option: Any) -> str:
    """What the help says of an argument or option."""
    return str(getattr(option, "help", "") or "")


def shown_default(option: Any) -> str:
    """What an option is where it is left out."""
    if option.required:
        return "required"
    plain_value = isinstance(option.default, int | float | str) and option.default not in (
        "",
        False,
    )
    return f"`{option.default}`" if plain_value else ""


def variables() -> str:
    """Every environment variable."""
    rows = [(f"`{name}`", meaning) for name, meaning in VARIABLES.items()]
    return "# Environment variables\n\n" + table("variable meaning", rows) + "\n"


def described(thing: Any) -> str:
    """A docstring as Markdown; its indented examples stay code."""
    return inspect.getdoc(thing) or ""


def kind_of(schema: dict[str, Any]) -> str:
    """The values that a JSON schema allows, in words."""
    if "anyOf" in schema:
        return " or ".join(map(kind_of, schema["anyOf"]))
    if "enum" in schema:
        return ", ".join(f"`{value}`" for value in schema["enum"])
    if "const" in schema:
        return f"`{schema['const']}`"
    words = {"null": "none", "array": "list", "object": "mapping", "string": "text"}
    name = words.get(str(schema.get("type")), str(schema.get("type", "any")))
    signs = {"exclusiveMinimum": ">", "minimum": "≥", "exclusiveMaximum": "<", "maximum": "≤"}
    bounds = [f"{sign} {schema[key]:g}" for key, sign in signs.items() if key in schema]
    inner = schema.get("items") or schema.get("additionalProperties")
    of = f" of {kind_of(inner)}" if isinstance(inner, dict) and inner else ""
    return name + of + (f" {' and '.join(bounds)}" if bounds else "")


def default_of(schema: dict[str, Any]) -> str:
    """An option's default as YAML would have it."""
    default = schema.get("default")
    return (
        ""
        if default is None
        else f"`{str(default).lower() if default in (True, False) else default}`"
    )


def plain(annotation: Any) -> str:
    """A type as it is written in code, without the names of modules."""
    text = annotation.__name__ if isinstance(annotation, type) else str(annotation)
    return re.sub(r"\b(?:[a-z_]\w*\.)+(?=\w)", "", text)


def table(header: str, rows: list[tuple[str, ...]]) -> str:
    """A Markdown table; nothing where there are no rows."""
    if not rows:
        return ""
    cells = [header.split(), ["---"] * len(header.split()), *rows]
    lines = [
        " | ".join(" ".join(cell.replace("|", "\\|").split()) for cell in row) for row in cells
    ]
    return "\n".join(f"| {line} |" for line in lines)
