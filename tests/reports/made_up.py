"""A made-up run of any size for the page that plays runs."""

from pathlib import Path

import numpy as np

from simfl.records import Manifest, RunFolder


def made_up(root: Path, clients: int, each: int, evaluations: int = 200) -> Path:
    """Write a run in which every client computes and sends `each` times; return its folder.

    Of every second computation, a message goes to a random client, and arrives when that one begins to compute.
    """
    draw = np.random.default_rng(1)
    folder = RunFolder.create(root, f"made-up-{clients}-{each}")
    text = f"name: made up\nseed: 1\nalgorithm: {{kind: adpsgd}}\nclients: {{count: {clients}}}\n"
    folder.write_scenario(text + "record: {play: true}\n")
    lengths = draw.lognormal(0.0, 0.2, (clients, each))
    ends = np.cumsum(lengths, axis=1)
    starts = np.concatenate([np.zeros((clients, 1)), ends[:, :-1]], axis=1)
    duration = float(ends.max())
    middle = starts + 0.9 * lengths  # computes until there, and then communicates
    client = np.repeat(np.arange(clients, dtype=np.int32), each)
    with folder.table("timeline") as table:
        for begin, end, activity in ((starts, middle, 0), (middle, ends, 3)):
            columns = {"client": client, "start_s": begin.ravel(), "end_s": end.ravel()}
            table.extend_columns({**columns, "activity": np.full(client.size, activity, dtype=np.int32)})
    order = np.argsort(ends.ravel(), kind="stable")
    twice = np.repeat(order, 2)[: 2 * client.size]  # two updates at an end
    with folder.table("updates") as table:
        count = len(twice)
        zeros = np.zeros(count)
        columns = {"time_s": ends.ravel()[twice], "client": client[twice], "peer": np.full(count, -1, dtype=np.int32)}
        columns |= {"round": np.full(count, -1), "staleness": draw.poisson(clients, count)}
        columns |= {"sample_size": np.full(count, 8, dtype=np.int32), "step_size": zeros, "noise_std": zeros}
        table.extend_columns(columns)
    delivered = ends.ravel()[order]
    resends = (draw.random(len(order)) < 0.05).astype(np.int32)
    with folder.table("messages") as table:
        source = draw.integers(0, clients, len(order)).astype(np.int32)
        columns = {"sent_s": middle.ravel()[order], "delivered_s": delivered, "source": source}
        columns |= {"target": client[order], "bytes": np.full(len(order), 3000), "resends": resends}
        table.extend_columns(columns)
    links = np.stack([np.arange(clients), (np.arange(clients) + 1) % clients], axis=1)
    with folder.table("edges") as table:
        table.extend(links.tolist())
    with folder.table("metrics") as table:
        for k in range(evaluations + 1):
            share = k / evaluations
            done = int(share * len(twice))
            row = (share * duration, done, share, 0, 1.0 - share, 1.0 - share, share, 0.1, done * 3000, done)
            table.append((*row, float("nan"), share))
    folder.write_manifest(Manifest("done", seed=1, device="cpu", time_s=duration, updates=len(twice)))
    with folder.table("clients"):
        pass
    return folder.path
