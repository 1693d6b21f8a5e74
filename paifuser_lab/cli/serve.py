"""`paifuser-lab serve` answers HTTP requests; `paifuser-lab stream` runs a model over a video.
Built on typer.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from ..progress import progress
from .loading import Name, Shapes, Trust, named, numbers, split
from .terminal import console, print_table

if TYPE_CHECKING:
    from ..streaming.serving import Server

SHOWN = 3  # of the frames set aside

Labels = Annotated[
    str,
    typer.Option(
        help="The names of the classes in their order, separated by commas; the model's own where "
        "left out."
    ),
]

Mean = Annotated[
    str,
    typer.Option(
        help="Taken from pixels of 0 to 1: a number, or one a channel, separated by commas; the "
        "model's own where left out."
    ),
]
Std = Annotated[str, typer.Option(help="Pixels are divided by it after that; as --mean.")]
How = Annotated[
    str, typer.Option(help="How images fill the model's input: letterbox, crop or stretch.")
]


def serve(
    model: Name,
    host: Annotated[
        str, typer.Option(help="The address to listen on; others than this machine's are open.")
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(help="The port; 0 takes a free one.", min=0, max=65535)
    ] = 8000,
    max_batch: Annotated[int, typer.Option(help="Requests in one call.", min=1)] = 8,
    max_delay_ms: Annotated[
        float, typer.Option(help="How long the first request of a call waits for others.", min=0)
    ] = 5.0,
    max_bytes: Annotated[int, typer.Option(help="Of a request's body.", min=1)] = 16 << 20,
    timeout_s: Annotated[float, typer.Option(help="Until a request is given up.", min=0.01)] = 30.0,
    max_waiting: Annotated[
        int, typer.Option(help="Requests that wait; one more gets 503.", min=1)
    ] = 1024,
    labels: Labels = "",
    mean: Mean = "",
    std: Std = "",
    how: How = "letterbox",
    ray: Annotated[
        str | None,
        typer.Option(
            help="Serve on Ray Serve: local, auto, or the address of a cluster (ray://…)."
        ),
    ] = None,
    replicas: Annotated[
        int, typer.Option(help="Processes on Ray, each with the model.", min=1)
    ] = 1,
    shapes: Shapes = "",
    trust: Trust = False,
) -> None:
    """Answer HTTP requests (an image or a tensor in, JSON out) with dynamic batching, until SIGTERM
    or Ctrl-C.
    """
    from ..parallel.group import is_loopback
    from ..streaming.serving import Limits, Predictor, Server, serve_on_ray

    limits = Limits(max_batch, max_delay_ms, max_bytes, timeout_s, max_waiting)
    options: dict[str, Any] = {
        "names": split(labels),
        "mean": numbers("mean", mean),
        "std": numbers("std", std),
        "how": how,
        "trust": trust,
    }
    if not is_loopback(host):
        console(stderr=True).print(
            f"{host} is reached from other machines, and this server asks nobody for a password: "
            "put a proxy in front of it that does.",
            style="yellow",
            soft_wrap=True,
        )
    name = named(model, trust=trust, shapes=shapes)
    if ray is None:
        _serve_here(Server(Predictor(name, **options), limits), host, port)
    serve_on_ray(
        name,
        host,
        port,
        address=None if ray == "local" else ray,
        replicas=replicas,
        limits=limits,
        on_start=lambda where: typer.echo(f"{name} on {where}"),
        on_wait=lambda message: typer.echo(message, err=True),
        **options,
    )
    typer.echo("stopped")


def _serve_here(server: Server, host: str, port: int) -> NoReturn:
    from ..streaming.serving import serve as run

    def announce(started: Server) -> None:
        name, number = started.address or (host, port)
        name = f"[{name}]" if ":" in name else name
        typer.echo(f"{started.predictor.model.name} on http://{name}:{number}")

    is_clean = run(server, host, port, on_start=announce)
    count = server.metrics.count("paifuser_requests_total", status="200")
    typer.echo(
        f"stopped; {count:.0f} answered"
        + ("" if is_clean else ", and some were not answered in time")
    )
    raise typer.Exit(0 if is_clean else 1)


def stream(
    source: Annotated[
        Path, typer.Argument(help="A video, a folder of images, or a Parquet file of images.")
    ],
    model: Annotated[
        str,
        typer.Option(
            help="A model's name, hf:TYPE, package.module:function, or a saved model's folder."
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option(help="The video (.mp4, .mov, .mkv) or table (.parquet) that it writes."),
    ] = None,
    ray: Annotated[
        str | None,
        typer.Option(help="Run on Ray: local, auto, or the address of a cluster (ray://…)."),
    ] = None,
    workers: Annotated[
        int | None, typer.Option(help="Workers; a thread, or an actor of Ray, each.", min=1)
    ] = None,
    batch: Annotated[int, typer.Option(help="Frames in one call of the model.", min=1)] = 8,
    least_score: Annotated[
        float, typer.Option(help="Boxes below this score are left out.", min=0, max=1)
    ] = 0.3,
    labels: Labels = "",
    mean: Mean = "",
    std: Std = "",
    how: How = "letterbox",
    save: Annotated[
        Path | None, typer.Option(help="Write the report to this file, as JSON.")
    ] = None,
    shapes: Shapes = "",
    trust: Trust = False,
) -> None:
    """Run a model over each frame of a video, in order and each once, and draw its answers."""
    from ..streaming.model_stream import model_stream
    from ..streaming.sink import Watched
    from ..streaming.stages.answer import Boxes

    built = model_stream(
        source,
        named(model, trust=trust, shapes=shapes),
        out=out,
        engine="threads" if ray is None else "ray",
        address=None if ray in (None, "local") else ray,
        workers=workers,
        batch=batch,
        names=split(labels),
        least_score=least_score,
        mean=numbers("mean", mean),
        std=numbers("std", std),
        how=how,
        trust=trust,
    )
    boxes: list[int] = []
    with progress("frames", built.source.frames) as bar:

        def watch(results: Any) -> None:
            bar.advance(len(results))
            answers = [getattr(result.value, "answer", None) for result in results]
            boxes.extend(len(answer) for answer in answers if isinstance(answer, Boxes))

        built.sink = Watched(built.sink, watch)
        report = built.run()
    print_table(report.title, report.table())
    typer.echo(report.summary)
    if boxes:
        typer.echo(f"{sum(boxes)} boxes in {sum(map(bool, boxes))} of {len(boxes)} frames")
    for failure in report.failures[:SHOWN]:
        typer.echo(f"frame {failure.index} was set aside by {failure.stage}: {failure.message}")
    for note in getattr(built.source, "notes", ()):
        typer.echo(note)
    if out is not None:
        typer.echo(f"in {out}")
    if save is not None:
        report.save(save)
    if report.frames and report.set_aside == report.frames:
        raise typer.Exit(1)
