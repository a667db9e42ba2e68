"""Compressed messages with every other setting: each combination runs, or one line says what to change."""

import itertools

import pytest

from simfl.algorithms import ALGORITHMS
from simfl.compression.compressors import COMPRESSORS
from simfl.errors import ScenarioError
from simfl.runs.runner import prepare, run
from simfl.scenario import from_mapping
from simfl.scenario.catalogues import Algorithm
from simfl.scenario.fields import kind_of, members_of
from tests.test_reproducibility import ALONE, MECHANISMS, unchanged

PRIVACY = ("null", *MECHANISMS, "{mechanism: gaussian, noise_multiplier: 0.5, view: global_hidden}")


def setup_of(*changes):
    return prepare(from_mapping(unchanged("adpsgd-atomic"), "rough", changes))


def possible():
    """Every algorithm with each privacy section and number of clients with which it can be prepared."""
    for kind in sorted(ALGORITHMS):
        ways = [f"algorithm={{kind: {kind}, batch_size: 8}}"]
        ways += ["algorithm={kind: fedbuff, noise: server, batch_size: 8}"] if kind == "fedbuff" else []
        for way in ways:
            for privacy in PRIVACY:
                for further in ((), ALONE):
                    changes = (way, f"privacy={privacy}", "stop={updates: 20}", *further)
                    yield kind, privacy, changes


@pytest.mark.slow
@pytest.mark.usefixtures("without_numbers")
def test_every_combination_runs_or_is_refused_in_one_line(tmp_path):
    ran, refused, played = set(), set(), itertools.cycle([True, *[False] * 6])
    turns = itertools.cycle([("null", "0.5"), ("0.5", "null")])  # each compressor has both in two settings
    sections = {kind_of(section, "kind"): section for section in members_of(Algorithm)}
    for kind, privacy, changes in possible():
        try:
            setup_of(*changes)
        except (ScenarioError, ValueError):
            continue
        for compressor, gamma in zip(COMPRESSORS, itertools.cycle(next(turns)), strict=False):
            try:
                downlink = str(bool(sections[kind].uses.server) and compressor in ("qsgd", "sign")).lower()
                theta = ", theta: 1" if compressor == "moniqua" else ""
                more = f"compression={{kind: {compressor}, gamma: {gamma}, downlink: {downlink}{theta}}}"
                setup = setup_of(*changes, more)
            except ScenarioError as error:
                (line,) = str(error).splitlines()
                assert "compress" in line, line
                assert ", found " in line
                assert "; " in line
                refused.add(kind)
                continue
            assert setup.training.compression.compressor.kind == compressor
            if next(played):  # each compressor with each seventh setting
                assert run(setup, out=tmp_path).status == "done"
            ran.add(kind)
            assert "global_hidden" not in privacy
    able = {kind for kind in ALGORITHMS if sections[kind].uses.messages.schemes}
    assert ran == able
    assert refused >= set(ALGORITHMS) - able


REFUSED = [
    (["algorithm={kind: sync_sgd}"], "compression: expected null with algorithm 'sync_sgd', found 'top_k'; an "
     "all-reduce adds messages up on their way, and compressed ones cannot be added: remove it"),
    (["compression.scheme=dcd", "compression.gamma=0.5"], "compression.gamma: expected null with scheme 'dcd', found "
     "0.5; remove it: only choco, deep_squeeze, direct and moniqua in gossip have a step size of mixing"),
    (["algorithm={kind: fedavg}", "compression.gamma=0.5"], "compression.gamma: expected null with algorithm 'fedavg', "
     "found 0.5; remove it"),
    (["algorithm={kind: fedavg}", "compression.scheme=choco"], "compression.scheme: expected error_feedback, ef21 or "
     "direct with algorithm 'fedavg', found 'choco'; choose one of them"),
    (["algorithm={kind: fedbuff, noise: server}", "privacy={mechanism: gaussian_update}"], "compression: expected null "
     "with noise of the server, found 'top_k'; messages would be compressed before noise is added: use noise: client"),
    (["compression.scheme=deep_squeeze"], "compression.gamma: expected a number with scheme 'deep_squeeze' and "
     "'decentralized_sgd', found nothing; no theory gives one; begin with the fraction of what a message keeps"),
    (["privacy={mechanism: gaussian, noise_multiplier: 1, view: global_hidden}"], "privacy.view: expected "
     "local_transcript with compressed messages, found 'global_hidden'; what a message changes shows whose estimate "
     "it is: leave the view out"),
    (["algorithm.optimizer={kind: momentum, state: {average: true}}"], "algorithm.optimizer.state.average: expected "
     "false with compressed messages, found true; messages have no room for states: remove average and travels"),
    (["compression={kind: qsgd, levels: 1, unbiased: true}"], "compression.gamma: expected a number with 'qsgd', whose "
     "messages may be further from a vector than 0 is (delta = "),
    (["topology={kind: erdos_renyi, probability: 0.5, redraw_every: 1 s}"], "compression.gamma: expected a number with "
     "a topology that changes, for which no theory gives one, found nothing"),
    (["aggregation={kind: median}"], "aggregation: expected null beside compressed gossip, found 'median'; neighbors "
     "average estimates that all of them keep, which a rule would end: leave one out, or use a server"),
    (["attackers={kind: sign_flip, clients: [1]}"], "attackers: expected null beside compressed gossip, found "
     "'sign_flip'; neighbors average"),
    (["algorithm={kind: sgp, overlap: 1}", "compression.gamma=0.5"], "algorithm.overlap: expected 0 with scheme "
     "'choco', found 1; a change of an estimate can be used only after those before it: use scheme: deep_squeeze"),
    (["algorithm={kind: sgp}"], "compression.gamma: expected a number with scheme 'choco' and 'sgp', found nothing; no "
     "theory gives one"),
    (["algorithm={kind: gossip_learning}", "compression={kind: sign, scheme: ecd}"], "compression.scheme: expected "
     "choco, deep_squeeze or direct with algorithm 'gossip_learning', found 'ecd'; choose one of them"),
    (["algorithm={kind: gossip_learning, merge: none}", "compression.gamma=0.5"], "algorithm.merge: expected age or "
     "average with compressed messages, found 'none'; a short message changes a model and cannot replace it: use "),
    (["compression.downlink=true"], "compression.downlink: expected false with algorithm 'decentralized_sgd', found "
     "true; remove it: there is no server that sends models"),
    (["algorithm={kind: sgp}", "compression={kind: moniqua, theta: 1}"], "compression.kind: expected messages for "
     "choco, deep_squeeze or direct with algorithm 'sgp', found 'moniqua'; 'moniqua' needs scheme moniqua, which the "
     "algorithm does not have: use another kind"),
    (["compression={kind: moniqua, theta: 1, scheme: direct}"], "compression.scheme: expected moniqua with kind "
     "'moniqua', found 'direct'; choose it, or another kind"),
    (["compression.scheme=moniqua"], "compression.scheme: expected choco, deep_squeeze, dcd, ecd or direct with kind "
     "'top_k', found 'moniqua'; choose it, or another kind"),
    (["compression={kind: moniqua}"], "compression.theta: expected"),
    (["compression.share=0"], "compression.share: expected a number > 0 and <= 1, found 0"),
    (["compression=topk"], "compression: expected top_k, random_k, qsgd, sign, moniqua or my_module:MyClass, found "
     "'topk'; "
     "did you mean 'top_k'?"),
]  # fmt: skip


@pytest.mark.parametrize(("changes", "line"), REFUSED, ids=[line[:40] for _, line in REFUSED])
def test_what_does_not_go_together_is_refused_in_one_line(changes, line):
    with pytest.raises(ScenarioError) as refused:
        setup_of("algorithm={kind: decentralized_sgd}", "privacy=null", "compression={kind: top_k}", *changes)
    (message,) = str(refused.value).splitlines()
    assert line in message


OWN = '''
from dataclasses import dataclass
import jax.numpy as jnp
from simfl.compression.base import AbstractCompressor


@dataclass(frozen=True)
class Halves(AbstractCompressor):
    """Every number with half of its bits."""

    kind = summary = "halves"
    type: str = "float16"

    def compress(self, x, key):
        return x.astype(self.type).astype({result})

    def bits(self, size):
        return {bits}

    def quality(self, size):
        return 0.999


def other():
    return 3
'''


def own(tmp_path, monkeypatch, *changes, name="Halves", result="jnp.float32", bits="16 * size"):
    module = f"own_{tmp_path.name}"
    (tmp_path / f"{module}.py").write_text(OWN.format(result=result, bits=bits))
    monkeypatch.syspath_prepend(tmp_path)
    return setup_of(
        "algorithm={kind: decentralized_sgd}",
        "stop={updates: 40}",
        f"compression={{kind: '{module}:{name}'}}",
        *changes,
    )


@pytest.mark.slow
def test_a_compressor_of_your_own_is_a_class_in_a_module(tmp_path, monkeypatch):
    setup = own(tmp_path, monkeypatch, "compression.gamma=1", "compression.options={type: bfloat16}")
    plan = setup.training.compression
    assert (plan.bytes, plan.compressor.type) == (2 * plan.size, "bfloat16")
    assert run(setup, out=tmp_path).status == "done"


@pytest.mark.parametrize(
    ("options", "line"),
    [
        (
            {"name": "other"},
            "expected an object of simfl.compression.base.AbstractCompressor from '{}:other', found int",
        ),
        ({"result": "jnp.int32"}, "'{}:Halves': compress: expected float32[650], found int32[650]"),
        ({"bits": "0.5"}, "'{}:Halves': expected an integer of bits and a quality of at most 1, found 0.5 and 0.999"),
        ({"result": "nothing"}, "'{}:Halves' raised NameError: name 'nothing' is not defined"),
    ],
)
def test_a_compressor_of_your_own_that_is_wrong_is_refused_in_one_line(tmp_path, monkeypatch, options, line):
    with pytest.raises(ScenarioError) as refused:
        own(tmp_path, monkeypatch, **options)
    (message,) = str(refused.value).splitlines()
    assert f"compression.kind: {line.format(f'own_{tmp_path.name}')}" in message
