"""`simfl schema`: a JSON Schema of scenarios, for editors."""

from __future__ import annotations

import json


def schema() -> None:
    """Print a JSON Schema of scenarios: editors that know it complete and check YAML.

    Write it beside your scenarios with `simfl schema > simfl.schema.json`. The first line of what `simfl new` writes
    tells editors with the YAML language server to use it. `simfl validate` checks more than a schema can.
    """
    from simfl.scenario import Scenario

    title = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "A scenario of simfl"}
    print(json.dumps({**Scenario.model_json_schema(by_alias=True), **title}, indent=1))
