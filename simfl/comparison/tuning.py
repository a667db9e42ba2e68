"""The table of a tuned study, tuning.csv: what was tried, and what was chosen."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path

from simfl.errors import DataError
from simfl.records.writer import regular

FILE = "tuning.csv"
MOST_NAMED = 4
_COLUMNS = ("setting", "rule", "seeds", "reached", "verdict", "border")


def tuning_lines(folder: Path) -> Iterator[str]:
    """Yield the values chosen for each setting; nothing without a tuning."""
    path = folder / FILE
    if not path.exists():
        return
    try:
        with regular(path).open(encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))
        if not rows or any(not isinstance(row.get(name), str) for row in rows for name in _COLUMNS):
            raise ValueError(f"expected columns {', '.join(_COLUMNS)}")
        names = list(rows[0])
        keys = names[names.index("rule") + 1 : names.index("seeds")]
        best = [row for row in rows if row["verdict"] == "chosen"]
        if not best:
            raise ValueError("expected a chosen value")
    except (OSError, ValueError, csv.Error) as error:
        raise DataError(f"{path}: expected the table of a tuning: {' '.join(str(error).split())[:200]}") from error

    def shown(row: dict[str, str]) -> str:
        return ", ".join(f"{key.rsplit('.', 1)[-1]}={row[key]}" for key in keys if row[key])

    yield f"tuned by the {best[0]['rule']}, on {best[0]['seeds']} seeds of their own ({FILE}):"
    for row in best:
        others = [other for other in rows if other["setting"] == row["setting"] and other is not row]
        close = [shown(other) for other in others if other["verdict"] == "within noise"]
        more = f" and {len(close) - MOST_NAMED} more" if len(close) > MOST_NAMED else ""
        noise = f"within noise: {'; '.join(close[:MOST_NAMED])}{more}" if close else "decided: the others are worse"
        if row["reached"] == "0":
            noise = "not decided: no run has a result by this rule; the best values of the metric count"
        border = "; at the border of what was tried" if row["border"] == "True" else ""
        yield f"  {row['setting']}: {shown(row)} ({noise}{border}; {len(others) + 1} tried)"
