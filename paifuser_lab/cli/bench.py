"""Commands of benches: each is the function `bench` of a module, which is imported when it is asked
for; its annotated parameters are the options. And `paifuser-lab tune-kernels`, which ranks tile
sizes of the CUDA kernels, or measures them on a GPU. Built on typer.
"""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, get_origin

import typer
from typer.core import TyperGroup

from ..errors import KernelError
from .terminal import print_table

MAX_ROWS = 20  # of a ranking
Json = Annotated[Path | None, typer.Option("--json", help="Write every figure to this file.")]


def group(text: str, package: str, names: Sequence[str]) -> typer.Typer:
    """The benches of a package: the command `a-b` is in its module `a_b`."""

    class Benches(TyperGroup):
        def list_commands(self, ctx: Any) -> list[str]:
            return list(names)

        def get_command(self, ctx: Any, cmd_name: str) -> Any:
            if cmd_name not in names:
                return None
            module = import_module(f"{package}.{cmd_name.replace('-', '_')}")
            return command_of(cmd_name, module.bench)

    app = typer.Typer(
        cls=Benches,
        help=text,
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        add_completion=False,
    )
    app.callback()(began)
    return app


def began() -> None:
    """Note the commit that is about to run: a bench may take hours, and another may come."""
    from ..bench.header import commit

    commit()


def command_of(name: str, measure: Callable[..., Any]) -> Any:
    """The command that calls a bench, shows its record and writes it where `--json` says."""
    signature = inspect.signature(measure, eval_str=True)
    options = [
        option.replace(kind=inspect.Parameter.KEYWORD_ONLY)
        for option in signature.parameters.values()
        if get_origin(option.annotation) is Annotated
    ]
    if signature.return_annotation is not None:
        kind = inspect.Parameter.KEYWORD_ONLY
        options.append(inspect.Parameter("json", kind, default=None, annotation=Json))

    def run(json: Path | None = None, **given: Any) -> None:
        if "keep" in signature.parameters:
            given["keep"] = lambda so_far: _save(so_far, json)
        _show(measure(**given), json)

    run.__doc__ = measure.__doc__
    run.__annotations__ = {option.name: option.annotation for option in options}
    run.__signature__ = inspect.Signature(options)  # type: ignore[attr-defined]
    app = typer.Typer(add_completion=False)
    app.command(name)(run)
    return typer.main.get_command(app)


def _show(measured: Any, json: Path | None) -> None:
    if measured is None:
        return
    print_table(measured.title, measured.table())
    typer.echo(measured.summary)
    _save(measured, json)
    if not measured.is_good:
        raise typer.Exit(1)


def _save(measured: Any, json: Path | None) -> None:
    """Write what was measured, also before the end: a killed process keeps nothing else."""
    if json is not None:
        from ..bench.header import save

        save(measured, json)


bench = group("Measure on this machine.", "paifuser_lab.bench", ("kernels", "models", "trust"))


def tune_kernels(
    names: Annotated[
        list[str] | None,
        typer.Argument(help="Words in names of kernels or cases; all without any."),
    ] = None,
    budget: Annotated[
        int, typer.Option(help="How many tiles to measure for each case.", min=1)
    ] = 60,
    seconds: Annotated[float, typer.Option(help="Time for measuring each case.", min=1)] = 120.0,
    offline: Annotated[
        bool,
        typer.Option("--offline", help="Without a GPU: compile, drop what does not fit, rank."),
    ] = False,
    device: Annotated[
        str, typer.Option(help="With --offline, the published device to rank for: H200, A100 …")
    ] = "H200",
) -> None:
    """Find how each CUDA kernel is best cut on this GPU, and keep that for every later run."""
    from ..bench.kernels import tuning

    chosen = tuning.tunable(tuple(names or ()))
    if not offline:
        _tune(chosen, budget, seconds)
        return
    target = tuning.published(device)
    for case in chosen:
        _show_ranking(
            f"{case.kernel.name}, {case.name}, predicted for {target.name}",
            tuning.ranked_offline(case, target),
        )
    typer.echo(
        "Nothing was timed, so nothing is kept: the order is a prediction that no measurement has "
        "confirmed."
    )


def _tune(chosen: Sequence[Any], budget: int, seconds: float) -> None:
    """Tune case by case; a failed case does not stop the others, an interrupt does."""
    from ..bench.kernels.tuning import tune

    failed = False
    for case in chosen:
        try:
            result = tune(case, budget=budget, seconds=seconds)
        except KernelError as error:
            typer.echo(f"{case.kernel.name}, {case.name}: {error}", err=True)
            failed = True
            continue
        typer.echo(f"{case.kernel.name}, {case.name}: {result}.")
        if result.search.is_interrupted:
            break
    if failed:
        raise typer.Exit(1)


def _show_ranking(title: str, ranking: Any) -> None:
    if ranking.ranked:
        print_table(title, ranking.table()[:MAX_ROWS])
    if len(ranking.ranked) > MAX_ROWS:
        typer.echo(f"and {len(ranking.ranked) - MAX_ROWS} more that run.")
    for reason, count in Counter(reason for _, reason in ranking.dropped).most_common():
        typer.echo(f"{count} dropped: {reason}")
