"""`coverwell serve`: predictions over HTTP."""

from __future__ import annotations

import contextlib
import os
import socket
from pathlib import Path

import click

from coverwell.cli import options
from coverwell.cli.messages import BadInput


@click.command(short_help="Predictions over HTTP, as JSON or CSV.")
@options.MODEL
@click.option("--host", default="127.0.0.1", help="The address to listen at; 0.0.0.0 for all of this machine's.")
@click.option("--port", type=click.IntRange(0, 65535), default=8000, help="0 takes a free one.")
@click.option("--max-rows", type=click.IntRange(min=1), default=100_000, help="Of a request.")
@click.option("--max-bytes", type=click.IntRange(min=1), default=2**24, help="Of the body of a request.")
@options.DEVICE
def serve(model: Path, host: str, port: int, max_rows: int, max_bytes: int, device: str) -> None:
    """Answer requests for predictions of MODEL, a .safetensors file, or an .onnx file that `coverwell export` wrote.

    POST /predict takes rows as JSON or CSV and answers in the same kind, with the columns and the numbers of `coverwell
    predict`. GET /openapi.json says what a row holds; /health, /info and /metrics are for those who run the service.
    Ctrl-C or SIGTERM stops it when all requests have their answers.

    \b
    Example:
      coverwell serve model.safetensors --port 8000
      curl -H 'Content-Type: text/csv' --data-binary @new.csv http://127.0.0.1:8000/predict
    """
    try:
        from coverwell.serve.app import Service, server_of
    except ModuleNotFoundError as error:
        way_out = "install the extra `serve`: pip install 'coverwell[serve]'"
        raise ImportError(f"the service needs {error.name}; {way_out}") from None
    from coverwell.serve.bodies import Limits
    from coverwell.serve.models import load_served

    service = Service(load_served(model, device=device), Limits(max_bytes, max_rows))
    with listening(host, port) as listener:
        address, number = listener.getsockname()[:2]
        name = f"[{address}]" if ":" in address else address
        url = f"http://{name}:{number}"
        click.echo(f"serving {model} at {url}; its schema is at /openapi.json; Ctrl-C stops it", err=True)
        with contextlib.suppress(KeyboardInterrupt):  # which the server passes on when it has stopped
            server_of(service.app).run(sockets=[listener])
    click.echo("stopped", err=True)


def listening(host: str, port: int) -> socket.socket:
    """A socket whose connections send at once: head and body of an answer are two parts, and the second would wait."""
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listener = socket.create_server((host, port), family=family)
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return listener
    except OSError as error:
        why = os.strerror(error.errno or 0)
        raise BadInput(f"cannot listen at {host}, port {port} ({why}); give another --host or --port") from None
