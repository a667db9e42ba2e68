"""`simfl schema`: a JSON Schema of scenarios, for editors."""

from __future__ import annotations

import json


def schema() -> None:
    """Print a JSON Schema of scenarios, with which editors complete and check YAML.

    Write it beside your scenarios with `simfl schema > simfl.schema.json`. Files of `simfl new` name it in their first
    line, for editors with the YAML language server. `simfl validate` checks more than a schema can.
    """
    from simfl.scenario import Scenario

    title = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "A scenario of simfl"}
    print(json.dumps({**Scenario.model_json_schema(by_alias=True), **title}, indent=1))
