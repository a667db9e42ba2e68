"""Valid scenarios as plain mappings, drawn by hypothesis."""

from typing import Any

from hypothesis import strategies as st

positive = st.floats(1e-6, 1e6)
non_negative = st.just(0.0) | positive
shares = st.floats(0.01, 1.0)
units = st.sampled_from(["ns", "us", "ms", "s", "min", "h", "d"])
times = positive | st.builds(lambda number, unit: f"{number!r} {unit}", positive, units)
bandwidths = st.builds(
    lambda number, unit: f"{number!r} {unit}", positive, st.sampled_from(["bit/s", "Mbit/s", "kB/s", "GiB/s", "Mbps"])
)
seldom = st.floats(1e11, 1e12)
"""Times between evaluations, so that no drawn scenario has too many evaluations."""
counts = st.integers(1, 1000)
words = st.text(st.characters(categories=("L", "N"), codec="utf-8"), min_size=1, max_size=12)


def section(required: dict[str, Any] | None = None, **optional: Any) -> st.SearchStrategy[dict[str, Any]]:
    """Draw a mapping with the required keys and some of the optional ones."""
    fixed = {
        key: value if isinstance(value, st.SearchStrategy) else st.just(value)
        for key, value in (required or {}).items()
    }
    return st.fixed_dictionaries(fixed, optional=optional)


def ordered(keys: tuple[str, str], values: st.SearchStrategy[float]) -> st.SearchStrategy[dict[str, float]]:
    """Draw two values, the smaller one under the first key."""
    return st.tuples(values, values).map(lambda pair: dict(zip(keys, sorted(pair), strict=True)))


uniform = ordered(("low", "high"), positive).map(lambda bounds: {"kind": "uniform", **bounds})
jitters = (
    positive
    | uniform
    | section({"kind": "lognormal", "sigma": st.floats(0, 5)})
    | st.just("exponential")
    | section({"kind": "constant"}, value=positive)
)
durations = (
    times
    | uniform
    | section({"kind": "exponential", "mean": times})
    | section({"kind": "lognormal", "mean": times, "sigma": st.floats(0, 5)})
)
settled_steps = (
    non_negative
    | section({"kind": "constant", "value": non_negative})
    | section({"kind": "by_epochs", "values": st.just([0.4, 0.04]), "boundaries": st.just([160])})
    | section(
        {"kind": st.sampled_from(["inverse", "inverse_sqrt"]), "initial": positive, "beta": non_negative},
        count=st.sampled_from(["updates", "examples", "epochs"]),
    )
)
steps = settled_steps | section({"kind": "warm_up", "initial": positive, "epochs": positive, "then": settled_steps})
options = st.recursive(
    st.none() | st.booleans() | st.integers() | positive | st.text(st.characters(codec="utf-8"), max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=6,
)
common = {
    "step_size": steps,
    "batch_size": counts,
    "sampling": st.sampled_from(["auto", "poisson", "shuffle", "with_replacement"]),
}
bounds = section({"bound": st.integers(0, 20)}, policy=st.sampled_from(["wait", "drop", "down_weight"]))
rounds = {
    "step_size": steps,
    "batch_size": counts,
    "sampling": st.sampled_from(["auto", "without_replacement", "shuffle"]),
    "concurrency": st.none() | st.integers(1, 16),
    "proximal": non_negative,
    "staleness_bound": st.none() | bounds,
}
federated = st.one_of(
    section({"kind": "fedbuff"}, buffer_size=counts, server_step=positive, local_steps=counts, **rounds),
    section({"kind": "fedbuff", "after_update": "wait", "buffer_size": 4, "concurrency": 4}, local_epochs=positive),
    section({"kind": "fedasync"}, mixing=shares, weighting=st.sampled_from(["constant", "hinge"]), **rounds),
)
gossip = section({"kind": "gossip_learning"}, period=times, merge=st.sampled_from(["age", "none"]), **common) | section(
    {"kind": "sgp"}, graph=st.sampled_from(["one_peer", "topology"]), overlap=st.integers(0, 5), **common
)
algorithms = (
    st.sampled_from(["sync_sgd", "decentralized_sgd", "adpsgd"])
    | section({"kind": "sync_sgd"}, **common)
    | section({"kind": "adpsgd"}, exchange=st.sampled_from(["atomic", "messages"]), staleness_bound=bounds, **common)
    | gossip
    | federated
    | section({"kind": "my_module.inner:Mine"}, options=st.dictionaries(words, options, max_size=3), **common)
)
sizes = st.just("equal") | section({"kind": "power_law"}, exponent=non_negative)
partitions = (
    st.sampled_from(["iid", "dirichlet", "shards", "by_label"])
    | section({"kind": "dirichlet"}, alpha=positive, sizes=sizes)
    | section({"kind": "shards"}, shards_per_client=counts)
    | section({"kind": "by_label"}, labels_per_client=st.integers(1, 2), sizes=sizes)  # of two classes or more
    | section({"kind": "resample", "size": counts}, sizes=sizes)
)
real = {
    "classes": st.none() | st.lists(st.integers(0, 9), min_size=2, max_size=10, unique=True),
    "normalize": st.sampled_from(["none", "unit_sphere", "standard", "unit_sphere_with_constant"]),
    "pca": st.none() | counts,
    "partition": partitions,
}
synthetic = {"samples": st.integers(100, 1000), "test_fraction": positive}
problems = (
    section(
        data=section({"set": st.sampled_from(["digits", "mnist"])}, **real), model=st.sampled_from(["softmax", "mlp"])
    )
    | section(
        {"data": section({"set": "libsvm", "path": words}, test_path=words, features=counts, **real)},
        model=section({"kind": "mlp"}, hidden=st.lists(counts, min_size=1, max_size=3), l2=non_negative),
    )
    | section(
        {
            "data": section(
                {"set": "csv", "path": words},
                label=words,
                drop=st.lists(words, max_size=2),
                partition=section({"kind": "by_column", "column": words}),
            )
        },
        model=st.just("softmax"),
    )
    | section(
        {
            "data": section({"set": "quadratic"}, dimension=counts, noise=non_negative, **synthetic),
            "model": st.just("quadratic"),
        }
    )
    | section(
        {
            "data": section({"set": "logistic"}, curvature=st.lists(positive, min_size=1, max_size=3), **synthetic),
            "model": section({"kind": "logistic"}, intercept=st.booleans()),
        }
    )
)
topologies = (
    st.sampled_from(["ring", "complete", "star", "exponential", "tree", "torus"])
    | section({"kind": "torus", "rows": st.sampled_from([2, 4])})
    | section({"kind": "regular"}, degree=st.integers(2, 15), mixing=st.sampled_from(["metropolis", "max_degree"]))
    | section({"kind": "erdos_renyi"}, probability=shares, redraw_every=times)
    | section({"kind": "peer_sampling", "redraw_every": "1 s"}, peers=st.integers(1, 15))
    | section({"kind": "one_peer", "redraw_every": "1 s"})
    | section({"kind": "contacts", "path": words}, every=times)
    | st.builds(
        lambda graphs: {"kind": "sequence", "graphs": [{"from": i, "graph": one} for i, one in enumerate(graphs)]},
        st.lists(st.sampled_from(["ring", "complete", {"kind": "regular", "degree": 4}]), min_size=1, max_size=3),
    )
    | section({"kind": st.sampled_from(["edge_list", "adjacency_list", "gml", "pajek"]), "path": words})
)
whom = section({"clients": st.lists(st.integers(0, 15), min_size=1, max_size=4, unique=True)}) | section(
    {"fraction": shares}
)
slowdowns = st.builds(
    lambda who, span, factor: {**who, **span, "factor": factor},
    whom | section({"random": st.integers(1, 16)}),
    st.just({}) | st.just({"from": "1 s", "until": 2}) | section({"from": times}),
    positive,
)
absences = st.builds(
    lambda who, how: {**who, **how},
    whom | st.just({"all": True}),
    section({"join": times})
    | st.just({"offline": [["1 s", 2], [3, "1 min"]]})
    | st.just({"offline": [["1 s", 2]], "crash": [{"at": 3, "back": "1 min"}], "every": "1 h"})
    | section({"random": section({"up": durations, "down": durations})})
    | st.just({"crash": [{"at": 1, "back": "2 s"}, {"at": "3 s", "back": "never"}]}),
)
links = section(
    latency=durations,
    bandwidth=st.none() | bandwidths,
    loss=st.floats(0, 0.9),
    resend_timeout=times,
    fifo=st.booleans(),
    uplink=st.none() | bandwidths,
    partitions=st.lists(
        st.builds(
            lambda who, span: {**who, **span},
            section({"fraction": shares}) | st.just({"groups": [[0, 3], [1]]}),
            st.just({}) | st.just({"from": "1 s", "until": "2 s"}) | section({"from": times}),
        ),
        max_size=2,
    ),
)
privacy = (
    st.none()
    | section(
        {"mechanism": "gaussian"}, clipping_norm=positive, noise_multiplier=non_negative, delta=st.floats(1e-9, 0.5)
    )
    | section({"mechanism": "gaussian_unclipped"}, noise_std=non_negative)
)


def _scenario(problem: dict[str, Any], rest: dict[str, Any]) -> dict[str, Any]:
    algorithm = rest["algorithm"]
    if isinstance(algorithm, dict) and algorithm["kind"] in ("fedbuff", "fedasync"):
        rest = {key: value for key, value in rest.items() if key != "privacy"}  # privacy protects whole updates there
    return {**problem, **rest}


scenarios = st.builds(
    _scenario,
    problems,
    section(
        {"algorithm": algorithms},
        name=words.map(lambda word: "n" + word),
        description=st.text(st.characters(codec="utf-8"), max_size=40),
        seed=st.integers(0, 2**64 - 1),
        clients=section(
            {"count": 16},
            seconds_per_example=times,
            seconds_per_batch=times,
            devices=st.none() | words,
            trace=st.none() | section({"path": words}, every=times),
            jitter=jitters,
            speed=jitters | section({"kind": "trace", "path": words, "column": words}),
        ),
        slowdowns=st.lists(slowdowns, max_size=3),
        topology=topologies,
        links=links,
        availability=st.lists(absences, max_size=3),
        privacy=privacy,
        stop=section({"updates": counts}, time=times, epochs=positive),
        evaluate=section({"every": section({"time": seldom}) | section({"updates": counts})}, clients=st.booleans()),
        execution=section(window=st.just("auto") | counts, width=st.just("auto") | counts),
        record=section(updates=st.booleans(), messages=st.booleans()),
    ),
)
"""Mappings that are valid scenarios."""
