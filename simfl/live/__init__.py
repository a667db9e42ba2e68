"""Real runs of a scenario, and calibration of scenarios on a machine.

- `transport`: messages between MPI processes, served while a process computes or sleeps.
- `workers`: SYNC, D-PSGD, AD-PSGD and FedAsync as one process per client.
- `coordinator`: the process beside them that counts, asks for snapshots, ends the run, and is FedAsync's server.
- `rank`: a process's program; `launching` starts as many as it needs; `support` says what cannot be run so.
- `prediction`: a live run beside the simulation of the same scenario.
- `fitting`: lines and jitter from measurements; `measuring` measures gradients and links, `logs` reads a user's own.

MPI (mpi4py) is imported by `mpi` and `rank` alone, in the processes that it starts.
"""

from simfl.plugins import Plugin

PLUGIN = Plugin(
    summary="the same scenario as real processes, and how fast this machine is",
    commands={"live": "simfl.live.command:live", "calibrate": "simfl.live.calibrate_command:calibrate"},
)
