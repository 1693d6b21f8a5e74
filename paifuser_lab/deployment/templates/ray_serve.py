"""Serve the model on Ray, as serve.py does on one machine: `serve run ray_serve:app`."""

import asyncio

from serve import refusal, replied


class Model:
    async def __call__(self, request):
        from starlette.responses import JSONResponse  # comes with Ray Serve

        if error := refusal(request.headers.get("content-length", "")):
            return JSONResponse({"error": error}, status_code=413)
        kind = request.headers.get("content-type", "")
        status, content = await asyncio.to_thread(replied, await request.body(), kind)
        return JSONResponse(content, status_code=status)


def app(args):  # Ray Serve calls it: the application to run
    from ray import serve

    return serve.deployment(Model).bind()
