"""Reconstruct the examples of a mini-batch from its gradient.

Two attacks on the sum of gradients of a mini-batch, clipped and noised as a client releases it:

- One example and a first layer with a bias: with errors e at the layer's outputs its gradient is e x^T by the weights
  and e by the bias, which gives x (Phong, Aono, Hayashi, Wang and Moriai 2018,
  https://doi.org/10.1109/TIFS.2017.2787987; Figure 4 of Li, Yang, Ren and Zhao 2019, https://arxiv.org/abs/1912.07902).
- Few examples: a search for inputs whose gradient has the direction of the given one, with little total variation of
  images (Geiping, Bauermeister, Dröge and Moeller 2020, https://arxiv.org/abs/2003.14053), for the labels that the
  gradient by the last bias implies (Wainakh et al. 2022, https://arxiv.org/abs/2105.09369).

`invert_run` runs a scenario, determines which gradients of a client an observer can solve for from its messages
(`simfl.accounts.network`: El Mrini, Cyffers and Bellet 2024, https://arxiv.org/abs/2402.10001), and inverts some of
these. The solution is the release, noise included.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from simfl.accounts.network import Network, Observer
from simfl.accounts.views import recovered
from simfl.attacks.adversary import listen, positions_in
from simfl.attacks.results import Inversion, Reconstructed
from simfl.errors import ScenarioError
from simfl.models import AbstractModel
from simfl.models.base import Array
from simfl.models.layered import AbstractNetwork
from simfl.models.layers import Dense
from simfl.privacy import checks
from simfl.scenario import Scenario
from simfl.streams import Streams
from simfl.tape import Gradient
from simfl.tape.executor import choose_device

#: Maximum number of examples of a mini-batch in a search.
MOST_EXAMPLES = 8
#: Steps of the search, and its step size in units of the inputs' range.
STEPS, STEP_SIZE = 600, 0.1
#: Weight of the total variation of images.
VARIATION = 1e-2


def input_from(model: AbstractModel, gradient: NDArray[Any]) -> NDArray[np.float64]:
    """Return the best input for a gradient, f64 [*input_shape]; exact for one example.

    With G_W [units, p] and g_b [units] of the first layer, x = G_W^T g_b / ||g_b||^2, by least squares over the units.
    The gradient is f32 [d], of any scale.

    Raises:
        ScenarioError: the model's first layer is not dense with a bias.
    """
    first = _dense_layer(model)
    if first is None:
        raise ScenarioError(
            f"model.kind: expected a model whose first layer is dense, with a bias, found {model.kind}; use logistic, "
            "softmax or mlp"
        )
    split = first.units * first.inputs
    weights = np.asarray(gradient[:split], dtype=np.float64).reshape(first.units, first.inputs)
    bias = np.asarray(gradient[split : split + first.units], dtype=np.float64)
    squared = float(bias @ bias)
    x: NDArray[np.float64] = weights.T @ bias / squared if squared else weights.sum(axis=0)
    return x.reshape(model.input_shape)


def _dense_layer(model: AbstractModel) -> Dense | None:
    first = model.layers[0] if isinstance(model, AbstractNetwork) else None
    return first if isinstance(first, Dense) and first.bias and first.inputs == model.num_features else None


def labels_from(
    model: AbstractModel, params: NDArray[np.float32], gradient: NDArray[Any], examples: int, middle: float
) -> NDArray[np.int32]:
    """Return the labels that the gradient of the last bias implies, int32 [b], sorted.

    It is s sum_i (softmax(z_i) - onehot(y_i)), with s < 1 if gradients are clipped. Approximate softmax(z_i) by the
    model's probabilities p for an input in the middle of the range. Then there are about b p_k - g_k / s examples of
    class k; the class with the largest remainder is taken repeatedly. The model ends in logits with a bias, the last
    parameters; the gradient f32 [d] was taken at params f32 [d]; `middle` is that of the features' range.
    """
    logits = np.asarray(_predict(model, params, np.full((1, *model.input_shape), middle, np.float32)), np.float64)[0]
    if logits.ndim == 0:  # one output for two classes
        logits, bias = np.array([0.0, logits]), np.array([-1.0, 1.0]) * gradient[-1]
    else:
        bias = np.asarray(gradient[-len(logits) :], dtype=np.float64)
    shares = np.exp(logits - logits.max())
    shares /= shares.sum()
    scale = min(1.0, -bias[bias < 0].sum() / (examples * (1.0 - 1.0 / len(shares)))) or 1.0
    left, labels = examples * shares - bias / scale, []
    for _ in range(examples):
        labels.append(int(np.argmax(left)))
        left[labels[-1]] -= 1.0
    return np.sort(np.array(labels, dtype=np.int32))


@functools.partial(jax.jit, static_argnums=0)
def _predict(model: AbstractModel, params: Array, x: Array) -> Array:
    return model.predict(params, x)


def search(
    model: AbstractModel,
    params: NDArray[np.float32],
    gradient: NDArray[np.float32],
    labels: NDArray[Any],
    *,
    bounds: tuple[float, float],
    image_shape: Sequence[int] | None = None,
    clipping_norm: float = math.inf,
    steps: int = STEPS,
    seed: int = 0,
) -> tuple[NDArray[np.float32], float]:
    """Search for inputs by Adam on 1 - cos(gradients) + total variation.

    The gradient f32 [d] of the sum, of any scale, was taken at params f32 [d]. `bounds` are the least and the largest
    value of a feature; `image_shape` is height, width (and channels) if inputs are images; `clipping_norm` is C of each
    example's gradient. The step size of Adam falls to a tenth over `steps`. `seed` is that of the start, uniform noise
    around the middle.

    Returns:
        Inputs f32 [b, *input_shape], and 1 - cos of their gradient.
    """
    low, high = bounds
    shape = (len(labels), *model.input_shape)
    noise = Streams(seed).generator("inversion").uniform(-0.1, 0.1, shape)
    start = (0.5 * (low + high) + (high - low) * noise).astype(np.float32)
    program = _search_program(model, tuple(image_shape or ()), steps, math.isfinite(clipping_norm))
    inputs, loss = program(start, params, gradient, labels, *map(np.float32, (low, high, clipping_norm)))
    return np.asarray(inputs), float(loss)


@functools.lru_cache(maxsize=8)
def _search_program(model: AbstractModel, image_shape: tuple[int, ...], steps: int, clips: bool) -> Any:
    def run(x: Array, params: Array, gradient: Array, y: Array, low: Array, high: Array, norm: Array) -> Any:
        direction = gradient / jnp.maximum(jnp.linalg.norm(gradient), 1e-12)
        weight = jnp.ones(len(x))

        def distance(x: Array) -> Array:
            clipped = model.clipped_gradient_sum(params, x, y, weight, norm) if clips else None
            own = model.gradient_sum(params, x, y, weight) if clipped is None else clipped
            return 1.0 - own @ direction / jnp.maximum(jnp.linalg.norm(own), 1e-12)

        def objective(x: Array) -> Array:
            return distance(x) + (VARIATION * _variation(x.reshape(len(x), *image_shape)) if image_shape else 0.0)

        adam = optax.adam(optax.cosine_decay_schedule(STEP_SIZE, steps, alpha=0.1))

        def step(carry: tuple[Array, Any], _: None) -> tuple[tuple[Array, Any], None]:
            x, state = carry
            slope = jax.grad(objective)(x)
            change, state = adam.update(slope, state)
            return (jnp.clip(x + (high - low) * change, low, high), state), None

        (x, _), _ = jax.lax.scan(step, (x, adam.init(x)), None, length=steps)
        return x, distance(x)

    return jax.jit(run)


def _variation(images: Array) -> Array:
    """Return the mean absolute difference of neighboring pixels."""
    return jnp.abs(jnp.diff(images, axis=1)).mean() + jnp.abs(jnp.diff(images, axis=2)).mean()


def similarity(original: NDArray[Any], reconstruction: NDArray[Any], span: float) -> tuple[float, float]:
    """Return the correlation of inputs, 0 for constants, and the PSNR in dB.

    `span` is the range of possible values.
    """
    one, other = np.ravel(original).astype(np.float64), np.ravel(reconstruction).astype(np.float64)
    error = float(np.mean((one - other) ** 2))
    ratio = math.inf if error == 0.0 else 10.0 * math.log10(span**2 / error)
    constant = one.std() == 0.0 or other.std() == 0.0
    return 0.0 if constant else float(np.corrcoef(one, other)[0, 1]), ratio


def matched(originals: NDArray[Any], inputs: NDArray[Any]) -> NDArray[Any]:
    """Return reconstructed inputs [b, ...] in the order with the least squared error."""
    one, other = (side.reshape(len(side), -1).astype(np.float64) for side in (originals, inputs))
    order = linear_sum_assignment(((one[:, None] - other[None]) ** 2).sum(axis=2))[1]
    return inputs[order]  # type: ignore[no-any-return]


def invert_run(
    scenario: Scenario | str | Path,
    *,
    observer: int | str,
    client: int,
    count: int = 6,
    steps: int = STEPS,
    device: str | None = None,
) -> Inversion:
    """Run a scenario and reconstruct a client's examples from an observer's messages.

    Args:
        scenario: a scenario, the path of one, or the folder of a run.
        observer: a client by number, "server", or "links" for all links.
        client: the client whose examples are reconstructed.
        count: maximum number of mini-batches to invert, evenly spaced over those that can be inverted.
        steps: of the search for the inputs of several examples.
        device: "cpu" or "gpu"; JAX's default otherwise.

    Raises:
        ScenarioError: there is nothing to invert.
        RunError: the run failed.
    """
    checks.whole(1, count=count, steps=steps)
    run_device = choose_device(device)
    network = Network(scenario)
    watcher, setup = network.observer([observer]), network.setup
    _check(network, client, watcher.nodes)
    solved = _solved(network, watcher, client)
    small = [(one.draw, one.begin) for one in solved if 1 <= one.examples <= MOST_EXAMPLES]
    spaced = np.unique(np.linspace(0, len(small) - 1, min(count, len(small))).astype(int)) if small else ()
    wanted = {small[place] for place in spaced}
    heard: list[tuple[NDArray[np.float32], NDArray[np.float32], Gradient]] = []

    def hear(models: NDArray[np.float32], releases: NDArray[np.float32], promises: Sequence[Gradient]) -> None:
        for row, promise in enumerate(promises):
            if (promise.draw, promise.begin) in wanted:
                heard.append((models[row], releases[row], promise))

    if wanted:
        listen(setup, run_device, {client: math.inf}, hear)
    return Inversion(
        subject=setup.scenario.name,
        observer=watcher.name,
        client=client,
        gradients=sum(batch.client == client for batch in network.knowledge.batches),
        solved=len(solved),
        small=len(small),
        image_shape=setup.dataset.image_shape,
        batches=[_inverted(network, *one, steps=steps) for one in heard],
    )


def _check(network: Network, client: int, nodes: frozenset[int]) -> None:
    setup, count = network.setup, network.count
    if not 0 <= client < count:
        raise ScenarioError(f"--client: expected 0 to {count - 1}, found {client}")
    if client in nodes:
        raise ScenarioError(f"--observer: expected another node than client {client}, which knows its own examples")
    if setup.problem.augment is not None:
        raise ScenarioError("data.augment: expected null, since an inversion is compared with the example; remove it")
    if setup.model.draws:
        raise ScenarioError("model.dropout: expected no random draws, which an inversion cannot know; switch it off")
    if setup.problem.rounds is not None:
        raise ScenarioError(
            "algorithm.kind: expected an algorithm whose clients send gradients, found "
            f"{setup.scenario.algorithm.kind}, whose clients train locally; an update of many steps is not a gradient"
        )
    if setup.tasks > 1 or not setup.dataset.num_classes or setup.model.tokens or setup.dataset.train_y.ndim != 1:
        raise ScenarioError(
            "model.kind: expected one model of a classification, found another problem: labels are read off the last "
            "bias; use softmax or mlp"
        )
    network.require_linear("inversion")
    if network.knowledge.own_noise() is None:
        raise ScenarioError(
            "privacy.noise: expected independent noise for each gradient, found correlated noise: an observer's "
            "solution is then not a release, and is not reconstructed here"
        )


def _solved(network: Network, observer: Observer, client: int) -> list[Any]:
    """Return the client's mini-batches whose gradients an observer can solve for."""
    network.check(observer)
    a, _ = network.matrices(network.seen(observer), observer)
    if not a.any():
        return []
    solvable = zip(network.knowledge.batches, recovered(a), strict=True)
    return [batch for batch, possible in solvable if possible and batch.client == client]


def _inverted(
    network: Network, params: NDArray[np.float32], release: NDArray[np.float32], promise: Gradient, steps: int
) -> Reconstructed:
    setup = network.setup
    model, dataset, clipping = setup.model, setup.dataset, setup.problem.clipping
    rows = np.asarray(setup.partition.of(promise.client))[positions_in(setup.problem, promise)]
    originals = dataset.scaling(dataset.train_x[rows])
    x = dataset.scaling(dataset.train_x[:1000])
    low, high = float(x.min()), float(x.max())
    inputs: NDArray[Any]
    if len(rows) == 1 and _dense_layer(model) is not None:
        inputs, method, distance = input_from(model, release)[None], "read off", 0.0
    else:
        norm = clipping.norm if promise.own_norm is None else promise.own_norm
        inputs, distance = search(
            model,
            params,
            release,
            labels_from(model, params, release, len(rows), 0.5 * (low + high)),
            bounds=(low, high),
            image_shape=dataset.image_shape,
            clipping_norm=math.inf if norm is None or clipping.clip != "example" else norm,
            steps=steps,
            seed=setup.scenario.seed,
        )
        inputs, method = matched(originals, inputs), "searched"
    pairs = [similarity(one, other, high - low) for one, other in zip(originals, inputs, strict=True)]
    return Reconstructed(
        promise.draw, method, originals, inputs, distance, [one for one, _ in pairs], [ratio for _, ratio in pairs]
    )
