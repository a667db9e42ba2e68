"""Invalid scenarios, each with its exact message.

The line has `{file}` where the name of the file belongs; see `Broken.line`. The CLI tests use this table as well.
"""

from __future__ import annotations

from typing import NamedTuple

ADPSGD = "algorithm: {kind: adpsgd}\n"


class Broken(NamedTuple):
    """A broken scenario: its name, its YAML, and the message."""

    name: str
    text: str
    message: str

    def line(self, file: object) -> str:
        """Return the message for a file of this name."""
        return self.message.replace("{file}", str(file))


def _bomb(first: str, begin: str, end: str) -> str:
    """Return ten million values in a few lines: each line repeats the previous one ten times."""
    lines = [f"a: {first}"]
    for old, new in zip("abcdefg", "bcdefgh", strict=True):
        lines.append(f"{new}: &{new} {begin}{', '.join([f'*{old}'] * 10)}{end}")
    return "\n".join(lines) + "\n"


BROKEN = [
    Broken(
        "empty",
        "",
        "{file}: expected key: value pairs, found an empty document; 'simfl new' writes an example",
    ),
    Broken(
        "not_a_mapping",
        "- algorithm\n- adpsgd\n",
        "{file}: expected key: value pairs, found ['algorithm', 'adpsgd']; 'simfl new' writes an example",
    ),
    Broken(
        "tab",
        "algorithm:\n\tkind: adpsgd\n",
        "{file}:2:1: expected spaces, found a tab; indent with spaces",
    ),
    Broken(
        "unclosed_bracket",
        "algorithm: {kind: adpsgd\nseed: 1\n",
        "{file}:2:5: expected well-formed YAML, found an error (did not find expected ',' or '}'); check "
        "quotes, brackets, colons and indentation",
    ),
    Broken(
        "unclosed_quote",
        "algorithm: {kind: 'adpsgd}\n",
        "{file}:2:1: expected well-formed YAML, found an error (found unexpected end of stream); check quotes, "
        "brackets, colons and indentation",
    ),
    Broken(
        "colon_in_value",
        "algorithm: kind: adpsgd\n",
        "{file}:1:16: expected well-formed YAML, found an error (mapping values are not allowed in this "
        "context); check quotes, brackets, colons and indentation",
    ),
    Broken(
        "reserved_character",
        ADPSGD + "description: @home\n",
        "{file}:2:14: expected a YAML value, found '@'; put the value in quotes",
    ),
    Broken(
        "two_documents",
        ADPSGD + "---\nseed: 1\n",
        "{file}:2:1: expected one YAML document, found a second; put each in its own file",
    ),
    Broken(
        "duplicate_key",
        ADPSGD + "clients:\n  count: 4\n  count: 8\n",
        "{file}:4:3: clients.count: expected each key once, found it again (first on line 3); remove one",
    ),
    Broken(
        "unknown_alias",
        ADPSGD + "seed: *seed\n",
        "{file}:2:7: expected the name of an anchor, found an unknown alias; define it with & before",
    ),
    Broken(
        "control_character",
        ADPSGD + 'description: "\a"\n',
        "{file}: expected text, found the control character 0x07; remove it or write it as an escape",
    ),
    Broken(
        "list_as_key",
        ADPSGD + "? [1, 2]\n: 3\n",
        "{file}:2:3: expected a word as key, found a list or mapping; write key: value",
    ),
    Broken(
        "python_object",
        "algorithm: !!python/object/apply:os.system ['true']\n",
        "{file}:1:12: expected plain YAML, found the tag '!!python/object/apply:os.system'; remove the tag",
    ),
    Broken(
        "python_name",
        ADPSGD + "description: !!python/name:os.system ''\n",
        "{file}:2:14: expected plain YAML, found the tag '!!python/name:os.system'; remove the tag",
    ),
    Broken(
        "own_tag",
        ADPSGD + "seed: !seed 1\n",
        "{file}:2:7: expected plain YAML, found the tag '!seed'; remove the tag",
    ),
    Broken(
        "alias_to_itself",
        ADPSGD + "slowdowns: &rules [*rules]\n",
        "{file}:2:12: expected values, found an alias to what contains it; write the value out",
    ),
    Broken(
        "alias_bomb",
        _bomb("&a [x, x, x]", "[", "]"),
        "{file}:7:4: expected at most 500,000 values with aliases expanded, found more; use fewer aliases",
    ),
    Broken(
        "merge_bomb",
        _bomb("&a {x: 1}", "{<<: [", "]}"),
        "{file}:7:12: expected at most 500,000 values with aliases expanded, found more; use fewer aliases",
    ),
    Broken(
        "too_deep_by_aliases",
        "a: &a0 [x]\n" + "".join(f"b{i}: &a{i} [*a{i - 1}]\n" for i in range(1, 600)),
        "{file}:1:4: expected at most 50 levels with aliases expanded, found more; nest less",
    ),
    Broken(
        "too_deep_by_merging",
        "a: &a0 {x: 1}\n" + "".join(f"b{i}: &a{i} {{<<: *a{i - 1}}}\n" for i in range(1, 600)),
        "{file}:1:4: expected at most 50 levels with aliases expanded, found more; nest less",
    ),
    Broken(
        "too_deep",
        ADPSGD + "slowdowns: " + "[" * 1000 + "]" * 1000 + "\n",
        "{file}:2:61: expected at most 50 levels, found more; nest less",
    ),
    Broken(
        "no_algorithm",
        "seed: 1\n",
        "{file}: algorithm: expected a value (the algorithm that trains the model), found nothing; "
        "add algorithm: {kind: sync_sgd}",
    ),
    Broken(
        "unknown_section",
        "algoritm: {kind: adpsgd}\n" + ADPSGD,
        "{file}: algoritm: expected a key of a scenario, found 'algoritm'; did you mean 'algorithm'?",
    ),
    Broken(
        "unknown_key",
        ADPSGD + "clients: {cuont: 4}\n",
        "{file}: clients.cuont: expected a key of clients, found 'cuont'; did you mean 'count'?",
    ),
    Broken(
        "unknown_key_far",
        ADPSGD + "record: {everything: true}\n",
        "{file}: record.everything: expected a key of record (updates, messages, timeline, epsilon, client_models, "
        "play), found 'everything'; remove it",
    ),
    Broken(
        "play_without_messages",
        ADPSGD + "record: {play: true, messages: false}\n",
        "{file}: record.messages: expected true beside play: true, found false; remove it, or play",
    ),
    Broken(
        "key_of_another_kind",
        ADPSGD + "data: {partition: {kind: iid, alpha: 0.3}}\n",
        "{file}: data.partition.alpha: expected a key of kind iid (sizes), found 'alpha'; remove it, or choose "
        "kind dirichlet",
    ),
    Broken(
        "key_of_another_algorithm",
        "algorithm: {kind: sync_sgd, exchange: atomic}\n",
        "{file}: algorithm.exchange: expected a key of kind sync_sgd (step_size, optimizer, batch_size, small_clients, "
        "sampling, gradient_noise, all_reduce), found 'exchange'; remove it, or choose kind adpsgd or a2cid2",
    ),
    Broken(
        "key_of_another_set",
        ADPSGD + "data: {set: digits, path: digits.csv}\n",
        "{file}: data.path: expected a key of set digits (partition, classes, class_groups, normalize, pca, "
        "pca_center, fit_on, test_fraction), found 'path'; remove it, or choose set mnist, cifar10, libsvm, npz, "
        "table, leaf, text, quadratic, logistic or linear",
    ),
    Broken(
        "unknown_kind",
        ADPSGD + "topology: {kind: rign}\n",
        "{file}: topology.kind: expected ring, complete, bipartite, star, torus, regular, erdos_renyi, watts_strogatz, "
        "barabasi_albert, exponential, tree, graphml, gml, pajek, edge_list, adjacency_list, "
        "one_peer, peer_sampling, sequence or contacts, found 'rign'; did you mean 'ring'?",
    ),
    Broken(
        "unknown_algorithm",
        "algorithm: {kind: ad_psgd}\n",
        "{file}: algorithm.kind: expected a name that 'simfl list algorithms' has, or my_module:MyClass, "
        "found 'ad_psgd'; did you mean 'adpsgd'?",
    ),
    Broken(
        "factors_of_a_method_without",
        "algorithm: {kind: corrected_gossip, step_factors: [1, 2]}\nclients: 2\n",
        "{file}: algorithm.step_factors: expected null with method exact_diffusion, found a list; only nids has a step "
        "for each client",
    ),
    Broken(
        "factors_of_fewer_clients",
        "algorithm: {kind: corrected_gossip, method: nids, step_factors: [1, 2]}\nclients: 4\n",
        "{file}: algorithm.step_factors: expected one factor for each of the 4 clients, found 2; list as many",
    ),
    Broken(
        "optimizer_of_corrected_gossip",
        "algorithm: {kind: corrected_gossip, optimizer: momentum}\n",
        "{file}: algorithm.optimizer: expected sgd with 'corrected_gossip', found 'momentum'; its corrections are "
        "those of plain steps",
    ),
    Broken(
        "compressed_sums_of_sgp",
        "algorithm: {kind: sgp, lost: sums}\ncompression: {kind: top_k, share: 0.1, gamma: 0.3}\n",
        "{file}: algorithm.lost: expected resend with compressed messages, found 'sums'; what a compressor leaves out "
        "is not in the sums",
    ),
    Broken(
        "two_lengths_of_k_gt",
        "algorithm: {kind: k_gt, local_steps: 2, local_epochs: 1}\n",
        "{file}: algorithm.local_epochs: expected local_steps or local_epochs, found both; remove one of them",
    ),
    Broken(
        "gradients_clipped_in_k_gt",
        "algorithm: {kind: k_gt}\nprivacy: {clipping_norm: 1, noise_multiplier: 1}\n",
        "{file}: privacy.mechanism: expected 'gaussian_update' with 'k_gt', found 'gaussian'; a client sends what many "
        "steps changed, which is clipped as a whole",
    ),
    Broken(
        "privacy_of_ditto",
        "algorithm: {kind: ditto}\nprivacy: {mechanism: gaussian_update, noise_multiplier: 1}\n",
        "{file}: privacy: expected null with ditto, found 'gaussian_update'; personal models are trained without "
        "noise, and the run keeps them; use fedavg",
    ),
    Broken(
        "pull_of_scaffold",
        "algorithm: {kind: scaffold, proximal: 0.1}\n",
        "{file}: algorithm.proximal: expected 0 with 'scaffold', found 0.1; use fedprox or feddyn",
    ),
    Broken(
        "server_step_of_feddyn",
        "algorithm: {kind: feddyn, server_step: 0.5}\n",
        "{file}: algorithm.server_step: expected 1 with 'feddyn', found 0.5; its server makes the step of the penalty",
    ),
    Broken(
        "columns_of_no_file",
        ADPSGD + "data: {set: digits, partition: {kind: by_column, column: writer}}\n",
        "{file}: data.partition.kind: expected another kind for data set 'digits', which has no columns, found "
        "'by_column'; use iid, or a set that is a file: table or npz",
    ),
    Broken(
        "rule_of_compressed_messages",
        "algorithm: {kind: decentralized_sgd}\ncompression: {kind: top_k}\naggregation: {kind: median}\n",
        "{file}: aggregation: expected null beside compressed gossip, found 'median'; neighbors average estimates that "
        "all of them keep, which a rule would end: leave one out, or use a server",
    ),
    Broken(
        "unknown_metric",
        ADPSGD + "evaluate: {every: {epochs: 1}, metrics: [makro_f1]}\n",
        "{file}: evaluate.metrics: expected macro_f1, balanced_accuracy, auc, worst_decile, worst_decile_models, "
        "own_classes, own_classes_models, mae, rmse, r2, suboptimality or distance, found 'makro_f1'; did you mean "
        "'macro_f1'?",
    ),
    Broken(
        "metrics_of_no_classes",
        ADPSGD + "data: quadratic\nmodel: quadratic\nevaluate: {metrics: [auc]}\n",
        "{file}: evaluate.metrics: expected none with model 'quadratic', which has no classes, found 'auc'; remove it",
    ),
    Broken(
        "own_models_that_nobody_evaluates",
        ADPSGD + "evaluate: {metrics: [worst_decile_models]}\n",
        "{file}: evaluate.clients: expected true with metric 'worst_decile_models', found false; set it, or choose "
        "worst_decile",
    ),
    Broken(
        "unknown_set",
        ADPSGD + "data: {set: minst}\n",
        "{file}: data.set: expected digits, mnist, cifar10, libsvm, npz, table, leaf, text, quadratic, logistic, "
        "linear or my_data:load, found "
        "'minst'; did you mean 'mnist'?",
    ),
    Broken(
        "unknown_mechanism",
        ADPSGD + "privacy: {mechanism: gausian}\n",
        "{file}: privacy.mechanism: expected gaussian, gaussian_update, gaussian_cohort, discrete_gaussian, "
        "laplace_l2, laplace, laplace_l2_radius_only, one_pass_gaussian, one_pass_gaussian_unclipped, "
        "gaussian_unclipped or laplace_l2_radius_only_mean, found 'gausian'; did you mean 'gaussian'?",
    ),
    Broken(
        "noise_of_examples_on_a_grid",
        ADPSGD + "privacy: {noise_multiplier: 1, quantize: true}\n",
        "{file}: privacy.quantize: expected a key of privacy, found 'quantize', which was removed; delete it: the "
        "noise of examples is one of real numbers",
    ),
    Broken(
        "a_tape_for_replays",
        ADPSGD + "record: {tape: true}\n",
        "{file}: record.tape: expected a key of record, found 'tape', which was removed; delete it: simfl sweep plays "
        "runs that differ in arithmetic alone together",
    ),
    Broken(
        "missing_kind",
        ADPSGD + "clients: {jitter: {sigma: 0.1}}\n",
        "{file}: clients.jitter.kind: expected constant, uniform, lognormal or exponential, found nothing; add "
        "'kind' with one of them",
    ),
    Broken(
        "latency_from_a_file",
        ADPSGD + "links: {latency: {path: latencies.csv}}\n",
        "{file}: links.latency: expected a value for all links, found a file; a column latency of topology: {kind: "
        "edge_list, path: ...} gives each link its own; links.rules with kind: trace gives values over time",
    ),
    Broken(
        "too_few_clients_for_short",
        ADPSGD + "clients: 0\n",
        "{file}: clients: expected an integer >= 1, found 0; choose a value in this range",
    ),
    Broken(
        "evaluated_every_number",
        ADPSGD + "evaluate: {every: 10}\n",
        "{file}: evaluate.every: expected a mapping, found 10; write key: value pairs (time, updates, epochs)",
    ),
    Broken(
        "missing_key",
        ADPSGD + "topology: {kind: graphml}\n",
        "{file}: topology.path: expected a value (GraphML file with one node per client, relative to the "
        "current folder), found nothing; add path",
    ),
    Broken(
        "bad_external_name",
        "algorithm: {kind: 'my module:MyAlgorithm'}\n",
        "{file}: algorithm.kind: expected a name like my_module:my_name, found 'my module:MyAlgorithm'; "
        "write module, colon, name",
    ),
    Broken(
        "text_for_integer",
        ADPSGD + "clients: {count: many}\n",
        "{file}: clients.count: expected an integer >= 1, found 'many'; write a whole number",
    ),
    Broken(
        "boolean_for_integer",
        ADPSGD + "clients: {count: true}\n",
        "{file}: clients.count: expected an integer >= 1, found true; write a whole number",
    ),
    Broken(
        "half_a_client",
        ADPSGD + "clients: {count: 2.5}\n",
        "{file}: clients.count: expected an integer >= 1, found 2.5; write a whole number",
    ),
    Broken(
        "no_clients",
        ADPSGD + "clients: {count: 0}\n",
        "{file}: clients.count: expected an integer >= 1, found 0; choose a value in this range",
    ),
    Broken(
        "negative_seed",
        ADPSGD + "seed: -1\n",
        "{file}: seed: expected an integer >= 0 and < 18446744073709551616, found -1; choose a value in this range",
    ),
    Broken(
        "endless_number",
        "seed: " + "9" * 5000 + "\n" + ADPSGD,
        "{file}: seed: expected an integer >= 0 and < 18446744073709551616, found "
        "'9999999999999999999999999999999999999...'; write a whole number",
    ),
    Broken(
        "infinite_step_size",
        "algorithm: {kind: adpsgd, step_size: .inf}\n",
        "{file}: algorithm.step_size: expected a finite number >= 0, found inf; write a finite number",
    ),
    Broken(
        "negative_step_size",
        "algorithm: {kind: adpsgd, step_size: -0.1}\n",
        "{file}: algorithm.step_size: expected a number >= 0, found -0.1; choose a value in this range",
    ),
    Broken(
        "yes_for_true",
        ADPSGD + "links: {fifo: yes}\n",
        "{file}: links.fifo: expected true or false, found 'yes'; write true or false",
    ),
    Broken(
        "scalar_for_section",
        ADPSGD + "links: 3\n",
        "{file}: links: expected a mapping, found 3; write key: value pairs (latency, bandwidth, loss, "
        "resend_timeout, fifo, sharing, uplink, downlink, rules, startup, overhead, partitions)",
    ),
    Broken(
        "null_for_section",
        ADPSGD + "stop:\n",
        "{file}: stop: expected a mapping, found nothing; fill it in or remove it",
    ),
    Broken(
        "scalar_for_list",
        ADPSGD + "slowdowns: 3\n",
        "{file}: slowdowns: expected a list, found 3; write it as [ ... ]",
    ),
    Broken(
        "unknown_choice",
        "algorithm: {kind: adpsgd, exchange: message}\n",
        "{file}: algorithm.exchange: expected atomic or messages, found 'message'; did you mean 'messages'?",
    ),
    Broken(
        "number_as_name",
        ADPSGD + "name: 7\n",
        "{file}: name: expected a name of at most 100 letters, digits and . _ + -, which begins with a "
        "letter or digit, found 7; put it in quotes",
    ),
    Broken(
        "path_as_name",
        ADPSGD + "name: ../elsewhere\n",
        "{file}: name: expected a name of at most 100 letters, digits and . _ + -, which begins with a "
        "letter or digit, found '../elsewhere'; it names a folder of results",
    ),
    Broken(
        "nul_in_path",
        ADPSGD + 'data: {set: npz, path: "a\\0b"}\n',
        "{file}: data.path: expected a text on one line, found 'a\\x00b'; remove the control characters",
    ),
    Broken(
        "noise_multiplier_negative",
        ADPSGD + "privacy: {noise_multiplier: -1}\n",
        "{file}: privacy.noise_multiplier: expected a number >= 0, found -1; choose a value in this range",
    ),
    Broken(
        "one_noise_for_some",
        ADPSGD + "privacy: {noise_multiplier: [1, 2]}\n",
        "{file}: privacy.noise_multiplier: expected 16 values, one for each client, found 2; change the list or "
        "clients.count",
    ),
    Broken(
        "budget_without_a_plan",
        ADPSGD + "privacy: {epsilon: 2}\nstop: {time: 1 s}\n",
        "{file}: privacy.noise_multiplier: expected a noise multiplier beside epsilon, found null; add it, or "
        "stop.epochs, from which the number of releases follows",
    ),
    Broken(
        "update_of_random_size",
        "algorithm: {kind: adpsgd, sampling: poisson}\nprivacy: gaussian_update\n",
        "{file}: algorithm.sampling: expected shuffle, without_replacement or with_replacement with mechanism "
        "'gaussian_update', found 'poisson'; an update is clipped as a whole",
    ),
    Broken(
        "clipping_norm_zero",
        ADPSGD + "privacy: {clipping_norm: 0}\n",
        "{file}: privacy.clipping_norm: expected a number > 0, found 0; choose a value in this range",
    ),
    Broken(
        "delta_one",
        ADPSGD + "privacy: {delta: 1}\n",
        "{file}: privacy.delta: expected a number > 0 and < 1, found 1; choose a value in this range",
    ),
    Broken(
        "loss_one",
        ADPSGD + "links: {loss: 1}\n",
        "{file}: links.loss: expected a number >= 0 and <= 0.9999, found 1; choose a value in this range",
    ),
    Broken(
        "window_in_words",
        ADPSGD + "execution: {window: large}\n",
        "{file}: execution.window: expected auto or an integer >= 1, found 'large'; write auto or a whole number",
    ),
    Broken(
        "no_hidden_layer",
        ADPSGD + "model: {kind: mlp, hidden: []}\n",
        "{file}: model.hidden: expected a list that is not empty, found []; write it as [ ... ]",
    ),
    Broken(
        "unknown_time_unit",
        ADPSGD + "links: {latency: 3 parsecs}\n",
        "{file}: links.latency: expected a time like '10 ms', found '3 parsecs'; use one of the units ns, us, "
        "ms, s, min, h, d",
    ),
    Broken(
        "misspelt_time_unit",
        ADPSGD + "clients: {seconds_per_example: 3 MS}\n",
        "{file}: clients.seconds_per_example: expected a time like '10 ms', found '3 MS'; did you mean 'ms'?",
    ),
    Broken(
        "negative_time",
        ADPSGD + "slowdowns: [{clients: [1], factor: 2, from: -1 s}]\n",
        "{file}: slowdowns.0.from: expected a time >= 0, found '-1 s'; choose a value in this range",
    ),
    Broken(
        "bandwidth_without_unit",
        ADPSGD + "links: {bandwidth: 1000000}\n",
        "{file}: links.bandwidth: expected a bandwidth like '100 Mbit/s', found 1000000; write a number and a "
        "unit such as Mbit/s or MB/s",
    ),
    Broken(
        "misspelt_bandwidth",
        ADPSGD + "links: {bandwidth: 100 mbit/s}\n",
        "{file}: links.bandwidth: expected a bandwidth like '100 Mbit/s', found '100 mbit/s'; did you mean 'Mbit/s'?",
    ),
    Broken(
        "words_for_time",
        ADPSGD + "stop: {time: a while}\n",
        "{file}: stop.time: expected a time like '10 ms', found 'a while'; write a number and one of the units "
        "ns, us, ms, s, min, h, d",
    ),
    Broken(
        "no_end",
        ADPSGD + "stop: {}\n",
        "{file}: stop: expected at least one of time, updates and epochs, found none of them; add for "
        "example epochs: 20",
    ),
    Broken(
        "only_accuracy",
        ADPSGD + "stop: {accuracy: 0.9}\n",
        "{file}: stop: expected at least one of time, updates and epochs, found only accuracy, which may never "
        "be reached; add for example epochs: 20",
    ),
    Broken(
        "only_a_metric",
        ADPSGD + "stop: {metric: test_loss, at_most: 0.5}\n",
        "{file}: stop: expected at least one of time, updates and epochs, found only test_loss, which may never "
        "be reached; add for example epochs: 20",
    ),
    Broken(
        "metric_without_bound",
        ADPSGD + "stop: {epochs: 2, metric: test_loss}\n",
        "{file}: stop.metric: expected at_least or at_most beside it, found neither; give one of them",
    ),
    Broken(
        "bound_without_metric",
        ADPSGD + "stop: {epochs: 2, at_most: 0.5}\n",
        "{file}: stop.at_most: expected a metric beside it, found none; add metric, or remove it",
    ),
    Broken(
        "error_of_classes",
        ADPSGD + "evaluate: {metrics: [mae]}\n",
        "{file}: evaluate.metrics: expected none with model 'softmax', which has no targets, found 'mae'; remove it",
    ),
    Broken(
        "two_cadences",
        ADPSGD + "evaluate: {every: {time: 1 s, epochs: 1}}\n",
        "{file}: evaluate.every: expected exactly one of time, updates and epochs, found time and epochs; keep "
        "one of time and epochs",
    ),
    Broken(
        "slowdown_of_whom",
        ADPSGD + "slowdowns: [{factor: 2}]\n",
        "{file}: slowdowns.0: expected exactly one of clients, fraction, regions and random, found none of "
        "them; add clients",
    ),
    Broken(
        "slowdown_of_two",
        ADPSGD + "slowdowns: [{clients: [1], random: 1, factor: 2}]\n",
        "{file}: slowdowns.0: expected exactly one of clients, fraction, regions and random, found clients and random; "
        "keep one of clients and random",
    ),
    Broken(
        "slowdown_without_factor",
        ADPSGD + "slowdowns: [{fraction: 0.5}]\n",
        "{file}: slowdowns.0.factor: expected a value (factor on the compute time: 10 is ten times slower), "
        "found nothing; add factor",
    ),
    Broken(
        "slowdown_backwards",
        ADPSGD + "slowdowns: [{clients: [1], factor: 2, from: 10 s, until: 1 s}]\n",
        "{file}: slowdowns.0.until: expected a time after 'from', which is 10 s, found 1 s; swap from and until",
    ),
    Broken(
        "client_unknown",
        ADPSGD + "slowdowns: [{clients: [3, 16], factor: 2}]\n",
        "{file}: slowdowns.0.clients.1: expected a client below clients.count, which is 16, found 16; clients "
        "are numbered from 0",
    ),
    Broken(
        "client_twice",
        ADPSGD + "slowdowns: [{clients: [3, 3], factor: 2}]\n",
        "{file}: slowdowns.0.clients: expected each client once, found client 3 more than once; list every "
        "client only once",
    ),
    Broken(
        "slowdown_of_an_unknown_region",
        ADPSGD + "regions: {names: [eu, us], counts: [8, 8]}\nslowdowns: [{regions: [us, ue], factor: 2}]\n",
        "{file}: slowdowns.0.regions.1: expected a name of regions.names, found 'ue'; name it there",
    ),
    Broken(
        "absence_of_a_region_where_there_are_none",
        ADPSGD + "availability: [{regions: [eu], join: 1 s}]\n",
        "{file}: availability.0.regions.0: expected a name of regions.names, found 'eu'; add regions",
    ),
    Broken(
        "region_twice",
        ADPSGD + "regions: {names: [eu, us], counts: [8, 8]}\nslowdowns: [{regions: [us, us], factor: 2}]\n",
        "{file}: slowdowns.0.regions: expected each region once, found region us more than once; list every region "
        "only once",
    ),
    Broken(
        "random_too_many",
        ADPSGD + "slowdowns: [{random: 17, factor: 2}]\n",
        "{file}: slowdowns.0.random: expected at most clients.count, which is 16, found 17; lower it or add clients",
    ),
    Broken(
        "absence_of_whom",
        ADPSGD + "availability: [{join: 3 s}]\n",
        "{file}: availability.0: expected exactly one of clients, fraction, regions and all, found none of "
        "them; add clients",
    ),
    Broken(
        "nothing_that_comes_again",
        ADPSGD + "availability: [{all: true, every: 1 h, join: 1 s}]\n",
        "{file}: availability.0.every: expected times that come again, offline, crash or a plain trace, found none of "
        "them; add some, or remove 'every': random absences and FedScale's go on by themselves",
    ),
    Broken(
        "gone_for_good_every_hour",
        ADPSGD + "availability: [{all: true, every: 1 h, crash: [{at: 1 s}]}]\n",
        "{file}: availability.0.every: expected a return from every crash, found never; add 'back', or remove 'every'",
    ),
    Broken(
        "never_there",
        ADPSGD + "availability: [{all: true, every: 1 h, offline: [[30 min, 60 min], [70 min, 90 min]]}]\n",
        "{file}: availability.0.every: expected more than 1 h, from the first begin to the last end, found 1 h; choose "
        "a longer time",
    ),
    Broken(
        "absence_without_reason",
        ADPSGD + "availability: [{all: true}]\n",
        "{file}: availability.0: expected at least one of join, offline, random, crash and trace, found none "
        "of them; say when these clients are away, or remove the rule",
    ),
    Broken(
        "trace_that_repeats_by_itself",
        ADPSGD + "availability: [{all: true, trace: {path: a.json, layout: fedscale}, every: 1 h}]\n",
        "{file}: availability.0.every: expected times that come again, offline, crash or a plain trace, found none of "
        "them; add some, or remove 'every': random absences and FedScale's go on by themselves",
    ),
    Broken(
        "offline_overlap",
        ADPSGD + "availability: [{all: true, offline: [[1 s, 5 s], [4 s, 6 s]]}]\n",
        "{file}: availability.0.offline.1: expected a begin after the interval before it has ended, at 5 s, "
        "found 4 s; sort them and remove overlaps",
    ),
    Broken(
        "offline_backwards",
        ADPSGD + "availability: [{all: true, offline: [[5 s, 1 s]]}]\n",
        "{file}: availability.0.offline.0: expected an end after the begin, found [5 s, 1 s]; choose a later time",
    ),
    Broken(
        "offline_no_interval",
        ADPSGD + "availability: [{all: true, offline: [5 s]}]\n",
        "{file}: availability.0.offline.0: expected an interval like [10 s, 20 s], found '5 s'; write its "
        "begin and its end",
    ),
    Broken(
        "back_before_crash",
        ADPSGD + "availability: [{clients: [2], crash: [{at: 30 s, back: 20 s}]}]\n",
        "{file}: availability.0.crash.0.back: expected a return after the crash at 30 s, found 20 s; choose "
        "a later time",
    ),
    Broken(
        "crash_after_the_last",
        ADPSGD + "availability: [{clients: [2], crash: [{at: 3 s, back: never}, {at: 9 s}]}]\n",
        "{file}: availability.0.crash.1.at: expected nothing after a crash without return, found 9 s; remove "
        "it or add 'back'",
    ),
    Broken(
        "never_online",
        ADPSGD + "availability: [{all: true, random: {up: 0 s, down: 1 s}}]\n",
        "{file}: availability.0.random.up: expected a time > 0, found 0 s; choose a longer time, or 'join' for "
        "clients that are absent at first",
    ),
    Broken(
        "too_few_speeds",
        ADPSGD + "clients: {count: 3, speed: {kind: list, values: [1, 2]}}\n",
        "{file}: clients.speed.values: expected 3 values, one for each client, found 2; change the list or "
        "clients.count",
    ),
    Broken(
        "speeds_swapped",
        ADPSGD + "clients: {speed: {kind: uniform, low: 2, high: 1}}\n",
        "{file}: clients.speed.high: expected a number >= low, which is 2, found 1; swap low and high",
    ),
    Broken(
        "too_few_sizes",
        ADPSGD + "data: {partition: {kind: iid, sizes: {kind: listed, values: [5]}}}\n",
        "{file}: data.partition.sizes.values: expected 16 values, one for each client, found 1; change the "
        "list or clients.count",
    ),
    Broken(
        "by_label_listed",
        ADPSGD + "data: {partition: {kind: by_label, sizes: {kind: listed, values: [5]}}}\n",
        "{file}: data.partition.sizes.kind: expected equal or power_law, found 'listed', which by_label cannot "
        "keep; use other sizes, or partition kind: iid",
    ),
    Broken(
        "too_many_labels",
        ADPSGD + "data: {partition: {kind: by_label, labels_per_client: 11}}\n",
        "{file}: data.partition.labels_per_client: expected at most 10, the classes of data set 'digits', "
        "found 11; lower it",
    ),
    Broken(
        "resample_without_size",
        ADPSGD + "data: {partition: {kind: resample}}\n",
        "{file}: data.partition.size: expected an integer >= 1, found nothing; add the number of examples that "
        "each client draws",
    ),
    Broken(
        "samples_too_few",
        ADPSGD + "data: {set: logistic, samples: 8}\nmodel: {kind: logistic}\n",
        "{file}: data.samples: expected at least one example for each of the 16 clients, found 8; draw more "
        "samples or use fewer clients",
    ),
    Broken(
        "two_spectra",
        ADPSGD + "data: {set: quadratic, dimension: 3, curvature: [1, 2, 3]}\nmodel: {kind: quadratic}\n",
        "{file}: data.dimension: expected nothing beside 'curvature', found 3; remove dimension or curvature",
    ),
    Broken(
        "labels_of_points",
        ADPSGD + "data: {set: quadratic, partition: {kind: shards}}\nmodel: {kind: quadratic}\n",
        "{file}: data.partition.kind: expected iid or resample for data set 'quadratic' with model "
        "'quadratic', which has no classes, found 'shards'; choose one of them",
    ),
    Broken(
        "binary_model",
        ADPSGD + "model: {kind: logistic}\n",
        "{file}: model.kind: expected one_vs_all, softmax, svm, mlp, cnn, lenet5, resnet, vgg or mobilenet for the 10 "
        "classes of data set 'digits', found 'logistic'; choose one of them",
    ),
    Broken(
        "quadratic_model",
        ADPSGD + "data: {set: libsvm, path: a9a}\nmodel: {kind: quadratic}\n",
        "{file}: data.set: expected data set 'quadratic' for model 'quadratic', found 'libsvm'; set data.set: "
        "quadratic, or choose another model",
    ),
    Broken(
        "quadratic_data",
        ADPSGD + "data: {set: quadratic}\n",
        "{file}: model.kind: expected quadratic for the points of data set 'quadratic', found 'softmax'; set "
        "model.kind: quadratic",
    ),
    Broken(
        "images_needed",
        ADPSGD + "data: {set: logistic}\nmodel: {kind: lenet5}\n",
        "{file}: model.kind: expected logistic, one_vs_all, softmax, svm or mlp for the two classes of data set "
        "'logistic', found 'lenet5'; choose one of them",
    ),
    Broken(
        "pca_of_images",
        ADPSGD + "data: {set: mnist, pca: 50}\nmodel: {kind: lenet5}\n",
        "{file}: data.pca: expected no pca with model 'lenet5', which needs images, found 50; remove pca, or "
        "choose model kind: softmax or mlp",
    ),
    Broken(
        "one_class",
        ADPSGD + "data: {set: digits, classes: [3, 3]}\n",
        "{file}: data.classes: expected at least two different classes, found [3, 3]; list each once",
    ),
    Broken(
        "class_of_no_digit",
        ADPSGD + "data: {set: mnist, classes: [0, 10]}\n",
        "{file}: data.classes: expected classes below 10, as many as data set 'mnist' has, found 10; classes are "
        "numbered from 0",
    ),
    Broken(
        "one_group_of_classes",
        ADPSGD + "data: {set: digits, class_groups: [[0, 1, 2]]}\n",
        "{file}: data.class_groups: expected at least two groups, with every class in at most one, found [[0, 1, 2]]; "
        "list each class once",
    ),
    Broken(
        "group_of_no_digit",
        ADPSGD + "data: {set: mnist, class_groups: [[0, 1], [10]]}\n",
        "{file}: data.class_groups: expected classes below 10, as many as data set 'mnist' has, found 10; classes are "
        "numbered from 0",
    ),
    Broken(
        "classes_and_groups",
        ADPSGD + "data: {set: mnist, classes: [0, 1], class_groups: [[0, 1], [2]]}\n",
        "{file}: data.class_groups: expected classes or class_groups, found both; remove one",
    ),
    Broken(
        "classes_of_a_regression",
        ADPSGD + "data: {set: libsvm, path: a9a, classes: [0, 1]}\nmodel: {kind: linear}\n",
        "{file}: model.kind: expected logistic, one_vs_all, softmax, svm, mlp, cnn, lenet5, resnet, vgg or mobilenet "
        "for the two classes of data set 'libsvm', found 'linear'; choose one of them",
    ),
    Broken(
        "labels_of_classes",
        ADPSGD + "data: {set: mnist, classes: [0, 1], partition: {kind: by_label, labels_per_client: 3}}\n",
        "{file}: data.partition.labels_per_client: expected at most 2, the classes of data set 'mnist', found 3; lower "
        "it",
    ),
    Broken(
        "accuracy_of_regression",
        ADPSGD + "data: {set: linear}\nmodel: {kind: linear}\nstop: {epochs: 2, accuracy: 0.9}\n",
        "{file}: stop.accuracy: expected no accuracy with model 'linear', found 0.9; stop by time, updates or epochs",
    ),
    Broken(
        "lonely_ring",
        ADPSGD + "clients: {count: 1}\n",
        "{file}: clients.count: expected at least 2 clients for topology 'ring', found 1; add clients, or use "
        "algorithm kind: sync_sgd",
    ),
    Broken(
        "degree_too_high",
        ADPSGD + "topology: {kind: regular, degree: 16}\n",
        "{file}: topology.degree: expected fewer than clients.count, which is 16, found 16; lower degree "
        "or add clients",
    ),
    Broken(
        "degree_odd",
        ADPSGD + "clients: {count: 5}\ntopology: {kind: regular, degree: 3}\n",
        "{file}: topology.degree: expected an even number, because the number of clients, 5, is odd, found 3; "
        "change degree or clients.count by one",
    ),
    Broken(
        "torus_rows",
        ADPSGD + "topology: {kind: torus, rows: 3}\n",
        "{file}: topology.rows: expected a divisor of clients.count, which is 16, with at least 2 columns, "
        "found 3; change rows or clients.count",
    ),
    Broken(
        "torus_prime",
        ADPSGD + "clients: {count: 17}\ntopology: {kind: torus}\n",
        "{file}: topology: expected clients.count = rows * columns, both >= 2, found 17 clients; choose "
        "clients.count with a divisor, or topology kind: ring",
    ),
    Broken(
        "too_many_neighbors",
        ADPSGD + "topology: {kind: watts_strogatz, neighbors: 16}\n",
        "{file}: topology.neighbors: expected fewer than clients.count, which is 16, found 16; lower neighbors "
        "or add clients",
    ),
    Broken(
        "odd_neighbors",
        ADPSGD + "topology: {kind: watts_strogatz, neighbors: 5}\n",
        "{file}: topology.neighbors: expected an even number, found 5; take as many on either side",
    ),
    Broken(
        "too_many_attachments",
        ADPSGD + "topology: {kind: barabasi_albert, attachments: 16}\n",
        "{file}: topology.attachments: expected fewer than clients.count, which is 16, found 16; lower "
        "attachments or add clients",
    ),
    Broken(
        "branching_one",
        ADPSGD + "topology: {kind: tree, branching: 1}\n",
        "{file}: topology.branching: expected an integer >= 2, found 1; choose a value in this range",
    ),
    Broken(
        "uniform_on_a_star",
        "algorithm: decentralized_sgd\ntopology: {kind: star, mixing: uniform}\n",
        "{file}: topology.mixing: expected metropolis or max_degree for topology 'star', whose degrees "
        "differ, found 'uniform'; use metropolis",
    ),
    Broken(
        "senders_on_an_odd_ring",
        "algorithm: {kind: adpsgd, pairing: senders}\nclients: {count: 15}\n",
        "{file}: algorithm.pairing: expected auto or everyone, because topology 'ring' of 15 clients is not "
        "bipartite, found 'senders'; use pairing: everyone, or an even ring",
    ),
    Broken(
        "partition_of_nobody",
        ADPSGD + "links: {partitions: [{from: 1 s, until: 2 s}]}\n",
        "{file}: links.partitions.0: expected exactly one of groups and fraction, found none of them; add groups",
    ),
    Broken(
        "partition_ends_before_it_begins",
        ADPSGD + "links: {partitions: [{fraction: 0.5, from: 3 s, until: 2 s}]}\n",
        "{file}: links.partitions.0.until: expected a time after 'from', which is 3 s, found 2 s; swap from and until",
    ),
    Broken(
        "partition_with_a_client_twice",
        ADPSGD + "links: {partitions: [{groups: [[0, 1], [1, 2]]}]}\n",
        "{file}: links.partitions.0.groups: expected each client in one group, found client 1 more than once; list "
        "every client only once",
    ),
    Broken(
        "partition_with_an_unknown_client",
        ADPSGD + "links: {partitions: [{groups: [[0, 16]]}]}\n",
        "{file}: links.partitions.0.groups.0.1: expected a client below clients.count, which is 16, found 16; clients "
        "are numbered from 0",
    ),
    Broken(
        "partition_with_a_word",
        ADPSGD + "links: {partitions: [{groups: [[0, serve]]}]}\n",
        "{file}: links.partitions.0.groups.0.1: expected a client by number, server, or a name of regions.names, "
        "found 'serve'; add regions",
    ),
    Broken(
        "partition_of_a_server_that_is_not_there",
        ADPSGD + "links: {partitions: [{groups: [[0, server]]}]}\n",
        "{file}: links.partitions.0.groups.0.1: expected clients alone, found 'server'; remove it: algorithm 'adpsgd' "
        "has no server",
    ),
    Broken(
        "partition_of_everybody",
        ADPSGD + "clients: {count: 3}\nlinks: {partitions: [{groups: [[0, 1, 2]]}]}\n",
        "{file}: links.partitions.0.groups: expected a node that is cut off, found all nodes in one group; leave some "
        "out, or add a group",
    ),
    Broken(
        "rule_of_nobody",
        ADPSGD + "links: {rules: [{latency: 1 ms}]}\n",
        "{file}: links.rules.0: expected exactly one of clients, fraction, regions, between and all, found "
        "none of them; add clients",
    ),
    Broken(
        "rule_without_values",
        ADPSGD + "links: {rules: [{all: true}]}\n",
        "{file}: links.rules.0: expected at least one of latency, bandwidth, loss, uplink and downlink, found"
        " none of them; say what differs",
    ),
    Broken(
        "rule_of_an_unknown_client",
        ADPSGD + "links: {rules: [{clients: [16], loss: 0.1}]}\n",
        "{file}: links.rules.0.clients.0: expected a client below clients.count, which is 16, found 16; "
        "clients are numbered from 0",
    ),
    Broken(
        "rule_of_an_unknown_region",
        ADPSGD + "links: {rules: [{regions: [eu], loss: 0.1}]}\n",
        "{file}: links.rules.0.regions.0: expected a client by number, server, or a name of regions.names, "
        "found 'eu'; add regions",
    ),
    Broken(
        "rule_with_a_negative_latency",
        ADPSGD + "links: {rules: [{all: true, latency: -1 ms}]}\n",
        "{file}: links.rules.0.latency: expected a time >= 0, found '-1 ms'; choose a value in this range",
    ),
    Broken(
        "uplink_between_two",
        ADPSGD + "links: {rules: [{between: [0, 1], uplink: 1 Mbit/s}]}\n",
        "{file}: links.rules.0.uplink: expected clients whose own capacity it is, found uplink between two "
        "sides; name clients, fraction, regions or all, without direction; or use bandwidth",
    ),
    Broken(
        "rule_that_never_ends_again",
        ADPSGD + "links: {rules: [{all: true, loss: 0.1, every: 1 s}]}\n",
        "{file}: links.rules.0.every: expected 'until' beside 'every', found none; say when it ends each time",
    ),
    Broken(
        "matrix_of_the_wrong_shape",
        ADPSGD + "regions: {names: [eu, us], counts: [8, 8], latency: [[1 ms, 2 ms], [3 ms]]}\n",
        "{file}: regions.latency: expected 2 values, one for each of regions.names, found 1; change the row",
    ),
    Broken(
        "regions_that_hold_too_few",
        ADPSGD + "regions: {names: [eu, us], counts: [8, 7]}\n",
        "{file}: regions.counts: expected counts that add up to clients.count, which is 16, found 15; change "
        "them or clients.count",
    ),
    Broken(
        "outage_of_a_server_that_is_not_there",
        ADPSGD + "server: {offline: [[1 s, 2 s]]}\n",
        "{file}: server.offline: expected no outage of a server that is not there, found one; remove it: algorithm "
        "'adpsgd' has no server",
    ),
    Broken(
        "outages_of_the_server_behind_one_without_end",
        "algorithm: {kind: fedavg}\nserver: {offline: [[1 s, never], [3 s, 4 s]]}\n",
        "{file}: server.offline.1: expected nothing after an interval without end, found 3 s; remove it or name the "
        "end",
    ),
    Broken(
        "evaluations_without_number",
        ADPSGD + "stop: {time: 1 s}\nevaluate: {every: {time: 1.0e-12}}\n",
        "{file}: evaluate.every.time: expected at most 1,000,000 evaluations until stop.time, which is 1 s, found "
        "0.001 ns; evaluate less often",
    ),
    Broken(
        "evaluations_between_updates",
        ADPSGD + "evaluate: {every: {time: 1 ns}}\n",
        "{file}: evaluate.every.time: expected at most 1,000 evaluations from one update to the next, or a stop.time, "
        "found 1 ns; evaluate less often",
    ),
    Broken(
        "times_without_end",
        ADPSGD + "links: {latency: 1.0e+13}\n",
        "{file}: links.latency: expected a time of at most 1e+12 s, found 10000000000000.0; choose a shorter time",
    ),
    Broken(
        "a_distribution_that_never_shows_its_mean",
        ADPSGD + "links: {latency: {kind: lognormal, mean: 1 ms, sigma: 1000}}\n",
        "{file}: links.latency.sigma: expected a number >= 0 and <= 5, found 1000; choose a value in this range",
    ),
    Broken(
        "more_replayed_than_remembered",
        "algorithm: {kind: deep_q_sgd, memory: 5}\nmodel: {kind: one_vs_all}\n",
        "{file}: algorithm.replay: expected at most memory, which is 5, found 10; lower it or raise memory",
    ),
    Broken(
        "schedule_values",
        "algorithm:\n  kind: adpsgd\n  step_size: {kind: by_epochs, values: [0.4], boundaries: [10]}\n",
        "{file}: algorithm.step_size.values: expected one step size more than boundaries, that is 2, found 1; "
        "give one value before, between and after the boundaries",
    ),
    Broken(
        "schedule_unsorted",
        "algorithm:\n  kind: adpsgd\n  step_size: {kind: by_epochs, values: [0.4, 0.1, 0.2], boundaries: [10, 5]}\n",
        "{file}: algorithm.step_size.boundaries.1: expected an epoch after 10, found 5; sort the boundaries",
    ),
]
