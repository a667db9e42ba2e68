"""`simfl watch`: a run or a sweep under way, in the browser."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Annotated

from typer import Argument, Option


def watch(
    folder: Annotated[Path, Argument(metavar="RUN|SWEEP", help="The folder of a run or of a sweep.")],
    port: Annotated[int, Option("--port", min=0, max=65535, help="The port; 0 for a free one.")] = 0,
) -> None:
    """Serve a page that follows a run or a sweep under way, until Ctrl-C.

    The page of a run is that of simfl play; it grows as the run writes its tables. The page of a sweep shows its runs,
    what they have reached, and curves so far.

    The address that is printed works on this machine alone, and has a secret in it: open it in a browser, and pass it
    to people only who may see the run.
    """
    from simfl.reports.watch import serve

    with serve(folder, port) as server, contextlib.suppress(KeyboardInterrupt):
        print(server.url, flush=True)
        server.serve_forever()
