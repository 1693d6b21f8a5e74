"""Serve the model on Ray, as serve.py does on one machine: `serve run ray_serve:app`."""

import asyncio
import io

from run import SPEC, answer

LIMIT_BYTES = 64 << 20
SUFFIXES = {"application/x-npy": ".npy", "application/x-npz": ".npz"}


class Model:
    async def __call__(self, request):
        from starlette.responses import JSONResponse  # comes with Ray Serve

        length = request.headers.get("content-length", "")
        if not length.isdigit() or not 0 < int(length) <= LIMIT_BYTES:
            error = f"give a body of 1 to {LIMIT_BYTES} bytes"
            return JSONResponse({"error": error}, status_code=413)
        suffix = SUFFIXES.get(request.headers.get("content-type", ""), "")
        body = io.BytesIO(await request.body())
        try:
            outputs = await asyncio.to_thread(answer, body, suffix)
        except (Exception, SystemExit) as error:  # each library raises its own for a bad body
            text = f"{type(error).__name__}: {error}"[:500]
            return JSONResponse({"error": text}, status_code=400)
        values = {name: array.astype("float64").tolist() for name, array in outputs.items()}
        return JSONResponse({"outputs": values, "labels": SPEC["labels"]})


def app(args):  # Ray Serve calls it: the application to run
    from ray import serve

    return serve.deployment(Model).bind()
