"""Real runs of a scenario, and calibration of scenarios on a machine.

- `transport`: messages between MPI processes, served while a process computes or sleeps.
- `workers`: SYNC, D-PSGD, AD-PSGD and FedAsync as one process per client.
- `coordinator`: one more process, which counts updates, requests snapshots, ends the run, and is FedAsync's server.
- `rank`: the program of a process; `launching` starts the processes; `support` rejects scenarios that cannot run live.
- `prediction`: a live run beside the simulation of the same scenario.
- `fitting`: lines and jitter from measurements; `measuring` measures gradients and links, `logs` reads a user's log.
- `single`: one client's arithmetic, on request; `editing` writes what was measured into the text of a scenario.

Only `mpi` and `rank` import mpi4py, in the processes that MPI starts.
"""

from simfl.plugins import Plugin

PLUGIN = Plugin(
    summary="the same scenario as real processes, and how fast this machine is",
    commands={"live": "simfl.live.command:live", "calibrate": "simfl.live.calibrate_command:calibrate"},
)
