"""Delivery times of messages as SimGrid computes them: run by a Python that has its bindings, see check_simgrid.py.

    python3 simgrid_times.py < case.json > times.json

A case has `hosts`, a number; `links`, a list of [bytes per second, seconds], each split-duplex; `routes`, a list of
[source, target, [[link, whether upwards], ...]]; `messages`, a list of [time, source, target, bytes] in order of time;
and `options` of SimGrid. What comes out is when each message is there. SimGrid simulates once per process.
"""

import json
import sys

from simgrid import Actor, Comm, Engine, LinkInRoute, NetZone, this_actor


def main() -> None:
    """Simulate the case that is read, and write its times."""
    case = json.load(sys.stdin)
    engine = Engine(["simgrid_times", "--log=root.thres:critical", *(f"--cfg={option}" for option in case["options"])])
    zone = NetZone.create_full_zone("zone")
    hosts = [zone.create_host(f"host{k}", 1e9) for k in range(case["hosts"])]
    links = []
    for number, (bandwidth, latency) in enumerate(case["links"]):
        link = zone.create_split_duplex_link(f"link{number}", bandwidth)
        link.set_latency(latency)
        link.seal()
        links.append(link)
    for source, target, way in case["routes"]:
        crossed = [LinkInRoute(links[link], LinkInRoute.UP if up else LinkInRoute.DOWN) for link, up in way]
        zone.add_route(hosts[source].netpoint, hosts[target].netpoint, None, None, crossed, False)
    zone.seal()
    times = []

    def send() -> None:
        under_way = []
        for time, source, target, size in case["messages"]:
            this_actor.sleep_until(time)
            under_way.append(Comm.sendto_async(hosts[source], hosts[target], size))
        for message in under_way:
            message.wait()
            times.append(message.finish_time)

    Actor.create("sender", hosts[0], send)
    engine.run()
    json.dump(times, sys.stdout)


if __name__ == "__main__":
    main()
