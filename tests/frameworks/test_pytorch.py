"""Modules of PyTorch: outputs, gradients, weights that come back, and what is refused."""

import re
import sys
from pathlib import Path
from types import SimpleNamespace

import flax
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import simfl
from simfl.errors import ScenarioError
from simfl.models.base import Keyed
from simfl.models.own import own_model

torch = pytest.importorskip("torch", reason="pip install 'simfl[torch]'")
pytest.importorskip("torchax", reason="pip install 'simfl[torch]'")

SCENARIO = {
    "data": {"set": "digits", "normalize": "standard"},
    "clients": 2,
    "algorithm": {"kind": "sync_sgd", "step_size": 0.1, "batch_size": 2},
    "stop": {"updates": 4},
}
NETWORK = """
import torch

class Net(torch.nn.Module):
    def __init__(self, hidden=4):
        super().__init__()
        self.convolution = torch.nn.Conv2d(1, hidden, 3)
        self.norm = torch.nn.GroupNorm(2, hidden)
        self.dropout = torch.nn.Dropout(0.5)
        self.head = torch.nn.Linear(hidden * 36, 10)

    def forward(self, x):
        return self.head(self.dropout(torch.relu(self.norm(self.convolution(x))).flatten(1)))
"""
scope: dict = {}
exec(NETWORK, scope)
Net = scope["Net"]


def net(**changed):
    torch.manual_seed(0)
    made = Net()
    for name, part in changed.items():
        setattr(made, name, part)
    return made


def adapted(module, **options):
    return simfl.from_torch(module, "cross_entropy", image=(1, 8, 8), **options)


def as_model(given, x, y):
    return own_model(given, name="net", identity="net", x=x, y=y, num_classes=10, l2=0.0, key=np.zeros(2, np.uint32))


@pytest.fixture
def batch():
    generator = np.random.default_rng(0)
    return generator.normal(size=(5, 64)).astype(np.float32), generator.integers(10, size=5).astype(np.int32)


def test_clipped_sums_are_those_of_torch_func(batch):
    x, y = batch
    module = net().eval()
    model = as_model(adapted(module), x, y)
    params = {name: value.detach() for name, value in module.named_parameters()}

    def loss(params, x, y):
        z = torch.func.functional_call(module, params, (x.reshape(1, 1, 8, 8),))
        return torch.nn.functional.cross_entropy(z, y[None])

    each = torch.func.vmap(torch.func.grad(loss), (None, 0, 0))(params, torch.tensor(x), torch.tensor(y).long())
    names = [name for name, _ in model.layout]
    flat = np.concatenate([each[name].reshape(5, -1).numpy().astype(float) for name in names], axis=1)
    norms = np.linalg.norm(flat, axis=1)
    norm = float(np.median(norms))
    expected = (flat * np.minimum(1, norm / norms)[:, None]).sum(axis=0)
    total, lost = model.clip_and_sum(model.init(np.zeros(2, np.uint32)), x, y, jnp.ones(5), norm)
    np.testing.assert_allclose(total, expected, atol=1e-5)
    assert lost == 0


def test_weights_come_back(batch, tmp_path):
    module = net()
    run = simfl.run(SCENARIO | {"data": "digits"}, model=adapted(module), data=batch, out=tmp_path)
    assert module.training
    assert all(torch.equal(value, net().state_dict()[name]) for name, value in module.state_dict().items())
    module.load_state_dict(run.state_dict())
    assert not torch.equal(module.head.weight, net().head.weight)
    outputs = module.eval()(torch.tensor(batch[0]).reshape(5, 1, 8, 8)).detach()
    np.testing.assert_allclose(run.predict(batch[0], scores=True), outputs, atol=1e-5)


def test_parts_that_are_not_trained_keep_their_values_and_are_not_sent(batch, tmp_path):
    module = net()
    module.register_buffer("steps", torch.tensor(7))
    x, y = batch
    whole, head = (as_model(adapted(module, trained=trained), x, y) for trained in (None, ["head"]))
    assert whole.size == 4 * 9 + 4 + 8 + 1450
    assert head.size == as_model(adapted(module, trained=["*ead.*"]), x, y).size == 1450
    run = simfl.run(SCENARIO, model=adapted(module, trained=["head"]), data=batch, out=tmp_path)
    changed = {name for name, value in run.state_dict().items() if not torch.equal(value, module.state_dict()[name])}
    assert changed == {"head.weight", "head.bias"}


def test_weights_with_two_names_are_one_and_come_back_under_both(batch):
    x, y = batch
    tied = torch.nn.Sequential(torch.nn.Linear(64, 10, bias=False), torch.nn.Linear(10, 10), torch.nn.Linear(10, 10))
    tied[2].weight = tied[1].weight
    model = as_model(simfl.from_torch(tied, "cross_entropy"), x, y)
    assert model.size == 640 + 100 + 20
    state = simfl.to_torch(model.parts(model.init(np.zeros(2, np.uint32))))
    assert set(state) == set(tied.state_dict())
    tied.load_state_dict(state)
    assert as_model(simfl.from_torch(tied, "cross_entropy", trained=["2"]), x, y).size == 100 + 10


class Scaled(Net):
    """A network with a buffer that its `state_dict` does not have."""

    def __init__(self, draw=torch.ones):
        super().__init__()
        self.register_buffer("scale", 2 * draw(10), persistent=False)

    def forward(self, x):
        return self.scale * super().forward(x)


def test_buffers_that_are_not_saved_count_and_do_not_come_back(batch):
    x, y = batch
    scaled, plain = Scaled().eval(), net().eval()
    model = as_model(adapted(scaled), x, y)
    state = simfl.to_torch(model.parts(params := model.init(np.zeros(2, np.uint32))))
    plain.load_state_dict(state)
    outputs = 2 * plain(torch.tensor(x).reshape(5, 1, 8, 8)).detach()
    np.testing.assert_allclose(model.predict(params, x), outputs, atol=1e-5)
    with pytest.raises(ScenarioError, match="found random ones: scale; save them"):
        adapted(lambda: Scaled(torch.rand)).init(jax.random.key(1), x[:1])


def test_a_class_is_drawn_by_the_seed_of_the_run(batch):
    x, _ = batch
    given = adapted(Net)
    first, again, other = (given.init(jax.random.key(seed), x[:1])["head.weight"] for seed in (0, 0, 1))
    torch.manual_seed(3)
    drawn = torch.rand(1)
    torch.manual_seed(3)
    given.init(jax.random.key(0), x[:1])
    assert torch.equal(torch.rand(1), drawn)
    assert (first == again).all()
    assert (first != other).any()


class Dropping(torch.nn.Module):
    def forward(self, x):
        return torch.nn.functional.dropout(x, 0.5, training=True)


class Branch(torch.nn.Module):
    def forward(self, x):
        return x if x.sum() > 9 else 2 * x


class Centered(Net):
    def forward(self, x):
        z = super().forward(x)
        return z - z.mean(0)


class Half(Net):
    def forward(self, x):
        return super().forward(x).bfloat16()


class Texts(torch.nn.Module):
    """Logits for texts of 64 letters."""

    def __init__(self, batch_first):
        super().__init__()
        self.letters = torch.nn.Embedding(20, 8)
        self.attention = torch.nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=batch_first)
        self.head = torch.nn.Linear(8, 10)

    def forward(self, x):
        return self.head(self.attention(self.letters(x)).mean(1))


def texts(batch_first=True):
    return Texts(batch_first)


TOKENS = {"tokens": True, "image": None}


class Counting(Net):
    def forward(self, x):
        self.head.bias.data.add_(1.0)
        return super().forward(x)


class Pair(Net):
    def forward(self, x):
        return {"z": super().forward(x)}


@pytest.mark.parametrize(
    ("module", "options", "message"),
    [
        (
            lambda: net(norm=torch.nn.BatchNorm2d(4)),
            {},
            "layers that keep no state, found norm (BatchNorm2d); use Group",
        ),
        (
            lambda: net(norm=torch.nn.InstanceNorm2d(4, track_running_stats=True)),
            {},
            "layers that keep no state, found norm (InstanceNorm2d); use Group",
        ),
        (
            lambda: net(norm=torch.nn.BatchNorm2d(4, track_running_stats=False)).eval(),
            {},
            "layers that keep no state, found norm (BatchNorm2d); use Group",
        ),
        (
            lambda: net(head=torch.nn.LazyLinear(10)),
            {},
            "parameters with shapes, found none yet for head.weight, head.bias",
        ),
        (lambda: net(dropout=Dropping()), {}, "Net: dropout (Dropping): expected no random draws in evaluation mode"),
        (lambda: net(dropout=torch.nn.RReLU()), {}, "Net: dropout (RReLU): torchax raised OperatorNotFound"),
        (lambda: net(dropout=Branch()), {}, "Net: dropout (Branch): torchax raised ConcretizationTypeError"),
        (
            lambda: net(dropout=torch.nn.Softmax(0)),
            {},
            "other values of it in a batch after dropout (Softmax); the first",
        ),
        (Centered, {}, "other values of it in a batch after itself (Centered); the first axis"),
        (
            lambda: texts(batch_first=False),
            TOKENS,
            "other values of it in a batch after attention.self_attn (Multihead",
        ),
        (texts, {"image": None}, "letters (Embedding): a call with [2, 64] raised RuntimeError"),
        (texts, {"image": None}, "tokens=True (integers: true in a scenario) as integers"),
        (Half, {}, "expected outputs of float32, found torch.bfloat16; call .float() of the module before"),
        (Counting, {}, "expected no state, found that a call changes head.bias"),
        (Pair, {}, "from a call, found a dict with z; name one with output="),
        (Pair, {"output": "u"}, "found a dict without 'u' with z"),
        (net, {"trained": ["haed"]}, "found 'haed'; did you mean 'head'?"),
        (net, {"image": None}, "a call with [2, 64] raised RuntimeError: "),
        (net, {"image": (3, 8, 8)}, "expected (c, h, w) of the examples, which have 64 values, found (3, 8, 8)"),
        (lambda: lambda: 3, {}, "expected a torch.nn.Module, found a int"),
    ],
)
def test_refused(module, options, message, batch):
    with pytest.raises(ScenarioError) as raised:
        simfl.from_torch(module(), "cross_entropy", **{"image": (1, 8, 8), **options}).init(
            jax.random.key(0), batch[0][:1]
        )
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)


def test_norms_that_keep_what_they_learned_may_stay(batch):
    x, y = batch
    module = net(norm=torch.nn.BatchNorm2d(4))
    module(torch.randn(8, 1, 8, 8))
    module.norm.eval()
    assert as_model(adapted(module), x, y).size == 36 + 4 + 8 + 1450


def test_what_a_call_returns_beside_the_output_is_left_out(batch):
    x, _ = batch
    named = adapted(Pair, output="z")
    params = named.init(jax.random.key(0), x[:1])
    assert np.array_equal(named.predict(params, x), adapted(Net).predict(params, x))


class Dropped(torch.nn.Module):
    """A linear layer after dropout, twice: its expected output is that of evaluation mode."""

    def __init__(self):
        super().__init__()
        self.first, self.second = torch.nn.Dropout(0.25), torch.nn.Dropout(0.5)
        self.head = torch.nn.Linear(64, 10, bias=False)

    def forward(self, x):
        return self.head(self.second(self.first(x)))


def test_dropout_by_key_has_its_rate_its_scale_and_its_expectation(batch):
    x, y = batch
    model = as_model(simfl.from_torch(Dropped(), lambda z, y: z.sum(1), dropout=True), x, y)
    params = model.init(np.zeros(2, np.uint32))
    some, count = np.abs(x[:1]) + 1, 2000
    many = np.broadcast_to(some, (count, 64))
    keys = jax.random.key_data(jax.random.split(jax.random.key(0), count))

    def gradients(keys):
        keyed = Keyed(np.zeros(count, np.int32), keys)
        return jax.vmap(
            lambda one, y: model.gradient_sum(params, one[None], jax.tree.map(lambda a: a[None], y), jnp.ones(1))
        )(many, keyed)

    # The gradient of the sum of outputs by a row of the head is the input after dropout.
    rows = np.asarray(jax.jit(gradients)(keys)).reshape(count, 10, 64)
    assert (rows == rows[:, :1]).all()
    kept = rows[:, 0] / some
    assert np.isclose(kept, 0).mean() == pytest.approx(1 - 0.75 * 0.5, abs=0.006)
    np.testing.assert_allclose(kept[kept > 0.1], 1 / (0.75 * 0.5), rtol=1e-5)
    assert kept.mean() == pytest.approx(1, abs=0.02)
    assert not (kept[0] == kept[1]).all()
    np.testing.assert_array_equal(rows, np.asarray(jax.jit(gradients)(keys)).reshape(rows.shape))


def test_dropout_by_key_leaves_losses_and_clipping_as_they_are(batch):
    x, y = batch
    module = net()
    drawing, plain = (as_model(adapted(module, dropout=dropout), x, y) for dropout in (True, False))
    params = plain.init(np.zeros(2, np.uint32))
    for method in ("losses", "correct"):
        np.testing.assert_array_equal(getattr(drawing, method)(params, x, y), getattr(plain, method)(params, x, y))
    keyed = Keyed(y, jax.random.key_data(jax.random.split(jax.random.key(1), 5)))
    weights = np.eye(5, dtype=np.float32)
    single = [np.asarray(drawing.clip_and_sum(params, x, keyed, weight, 0.1)[0]) for weight in weights]
    np.testing.assert_allclose(np.linalg.norm(single, axis=1), 0.1, rtol=1e-5)
    total = drawing.clip_and_sum(params, x, keyed, jnp.ones(5), 0.1)[0]
    np.testing.assert_allclose(total, np.sum(single, axis=0), atol=1e-6)


def test_runs_with_dropout_repeat_and_differ_from_those_without(batch, tmp_path):
    def accuracy(**options):
        return simfl.run(SCENARIO, model=adapted(net(), **options), data=batch, out=tmp_path).model["head.weight"]

    drawn = accuracy(dropout=True)
    assert np.array_equal(drawn, accuracy(dropout=True))
    assert not np.allclose(drawn, accuracy(), atol=1e-4)


def test_dropout_needs_a_module_that_draws_in_training(batch):
    given = adapted(net(dropout=torch.nn.Dropout(0.0)), dropout=True)
    with pytest.raises(ScenarioError, match="dropout: expected random draws in training, found none"):
        given.init(jax.random.key(0), batch[0][:1])


def test_dropout_that_is_off_is_named():
    with pytest.warns(UserWarning, match=r"dropout is off: dropout \(Dropout\)"):
        adapted(Net)


def test_epsilons_are_those_of_the_same_network_of_flax(tmp_path):
    private = SCENARIO | {
        "algorithm": {"kind": "adpsgd", "step_size": 0.1, "batch_size": 4, "sampling": "poisson"},
        "privacy": {"mechanism": "gaussian", "clipping_norm": 1.0, "noise_multiplier": 1.3, "delta": 1e-5},
    }
    networks = (
        simfl.from_torch(lambda: torch.nn.Linear(64, 10), "cross_entropy"),
        simfl.from_flax(flax.linen.Dense(10), "cross_entropy"),
    )
    one, other = (simfl.run(private, model=network, out=tmp_path) for network in networks)
    assert one.clients.epsilon.max() > 0
    assert one.clients.epsilon.tolist() == other.clients.epsilon.tolist()


def test_kind_torch_of_a_scenario(tmp_path, monkeypatch):
    (tmp_path / "net_of_torch.py").write_text(NETWORK)
    monkeypatch.syspath_prepend(tmp_path)
    section = {"kind": "torch", "module": "net_of_torch:Net", "options": {"hidden": 2}, "image": [1, 8, 8]}
    run = simfl.run(SCENARIO | {"model": section}, out=tmp_path)
    assert run.model["head.weight"].shape == (10, 72)
    again = simfl.run(SCENARIO | {"model": section}, out=tmp_path)
    assert (again.model["head.weight"] == run.model["head.weight"]).all()


def test_the_file_of_the_page_compares_two_algorithms(tmp_path, monkeypatch):
    datasets = pytest.importorskip("datasets", reason="pip install 'simfl[huggingface]'")
    page = (Path(__file__).parents[2] / "docs/own_torch.md").read_text(encoding="utf-8")
    code = next(iter(re.findall(r"```python\n(.*?)```", page, re.DOTALL)))
    assert len(code.splitlines()) <= 40
    features = datasets.Features({"image": datasets.Image(), "label": datasets.Value("int64")})
    images = list(np.random.default_rng(0).integers(256, size=(200, 8, 8), dtype=np.uint8))
    table = datasets.Dataset.from_dict({"image": images, "label": [*range(10)] * 20}, features=features)
    table.train_test_split(0.2, seed=0).save_to_disk(tmp_path / "digits")
    monkeypatch.chdir(tmp_path)
    scope = {}
    exec(code.replace('"5 s"', '"100 ms"'), scope)
    assert [len(run.updates) > 0 for run in scope["runs"]] == [True, True]
    assert (tmp_path / "straggler.png").stat().st_size > 1000
    scope["Net"]().load_state_dict(torch.load(tmp_path / "net.pt"))


def test_without_torch_one_line_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "torchax", None)
    with pytest.raises(ScenarioError, match=r"pip install 'simfl\[torch\]'"):
        simfl.from_torch(SimpleNamespace(), "cross_entropy")
