"""docs/published.md: every corrected column follows from the printed ones by the arithmetic that the page states."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest

from seedbench import stats

PAGE = (Path(__file__).parent.parent / "docs" / "published.md").read_text(encoding="utf-8")
Rows = list[list[str]]


def tables(first: str) -> Rows:
    """The body rows of every table whose header begins with `method` and holds `first` as its second column."""
    rows: Rows = []
    inside = False
    for line in PAGE.splitlines():
        cells = [c.strip() for c in line.strip("| ").split("|")]
        if not line.startswith("|"):
            inside = False
        elif cells[:2] == ["method", first]:
            inside = True
        elif inside and not line.startswith("|--"):
            rows.append(cells)
    assert len(rows) == 30, "twelve, ten and eight methods"
    return rows


def of_128(printed: str) -> list[int]:
    """Every k whose k/128 is `printed` per cent when rounded, or cut after one decimal."""
    x = float(printed)
    return [k for k in range(129) if abs(k / 1.28 - x) <= 0.0501 or math.floor(k / 0.128 + 1e-9) / 10 == x]


@pytest.mark.parametrize("row", tables("Pick"), ids=lambda row: row[0])
def test_alfworld(row: list[str]) -> None:
    types, printed, mean, reads = [float(x) for x in row[1:7]], row[7], row[8], row[9]
    assert abs(math.fsum(types) / 6 - float(mean)) <= 0.0501
    ways = [f"{k}/128" for k in of_128(printed)]
    ways += ["mean of six"] * (abs(math.fsum(types) / 6 - float(printed)) <= 0.0501)
    assert reads == " or ".join(ways) and reads
    if row[0] == "SEED" or row[0].startswith("OPID"):
        assert "mean of six" in reads


def bamboogle(printed: float) -> set[int]:
    """Questions of 125 that a printed figure stands for: 50 (x/124 + s) = printed to 0.05, and x + s answered."""
    ways = ((x, s) for x in range(125) for s in (0, 1))
    return {x + s for x, s in ways if abs(50 * (x / 124 + s) - printed) <= 0.0501}


@pytest.mark.parametrize("row", tables("NQ"), ids=lambda row: row[0])
def test_search(row: list[str]) -> None:
    sets, (printed, average), n = [float(x) for x in row[1:7]], map(float, row[7:9]), int(row[9])
    direct = [k for k in range(126) if abs(k / 1.25 - printed) < 0.09]
    if row[0] == "GRPO" and printed in (26.4, 37.6):
        assert direct == [n] and not bamboogle(printed), "an earlier paper's figure, as it stands"
    elif printed == 0:
        assert direct == [0] == list(bamboogle(printed)) and n == 0
    else:
        assert not direct and bamboogle(printed) == {n}
    assert abs(n / 1.25 - float(row[10])) <= 0.0501
    assert abs((math.fsum(sets) + n / 1.25) / 7 - float(row[11])) <= 0.0501
    mean = math.fsum([*sets, printed]) / 7
    assert (abs(mean - average) <= 0.0501) == ((row[0], printed) != ("SEED", 67.7)), "the one that the page names"


def test_the_misprinted_average() -> None:
    (row,) = (r for r in tables("NQ") if r[0] == "SEED" and r[7] == "67.7")
    printed = math.fsum(map(float, row[1:8])) / 7
    assert f"average {printed:.2f}, not the printed {row[8]}" in " ".join(PAGE.split())
    corrected = float(row[11])
    low = corrected - (printed - float(row[8]))
    assert f"between {low:.1f} and {corrected:.1f}" in PAGE and round(7 * (printed - float(row[8])), 1) in (1.0, 1.1)


@pytest.mark.parametrize("row", tables("printed score"), ids=lambda row: row[0])
def test_webshop(row: list[str]) -> None:
    k = int(row[3])
    assert of_128(row[2]) == [k]
    assert row[4] == "–".join(f"{100 * end:.1f}" for end in stats.wilson(k, 128))


def test_webshop_counts() -> None:
    cut = [row[2] for row in tables("printed score") if abs(int(row[3]) / 1.28 - float(row[2])) > 0.0501]
    assert sorted(cut) == ["64.0", "72.6", "76.5", "76.5"] and "26 when\nrounded" in PAGE


def test_every_correction_is_marked_as_unconfirmed() -> None:
    assert "No author has\nconfirmed any of them" in PAGE and PAGE.count("unconfirmed)") == 3
    for head in re.findall(r"^\| method .*$", PAGE, re.M):
        names = [c.strip() for c in head.strip("| ").split("|")]
        added = [c for c in names if c.startswith(("inferred", "recomputed", "printed avg reads"))]
        assert added, "each table has its corrected columns"


def test_the_means_of_seven_are_those_worked_out_by_hand() -> None:
    """Worked out apart from this page, from the same printed figures."""
    hand = {"GRPO": "36.4 42.0 36.0", "Skill-GRPO": "35.8 43.3", "SDAR": "38.6 45.2 37.0", "SEED": "41.3 44.4 37.3"}
    for method, means in hand.items():
        ours = [row[11] for row in tables("NQ") if row[0] == method]
        assert ours[: len(means.split())] == means.split()
