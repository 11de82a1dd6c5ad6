"""Repetitions, curves, scorecards and the pages and texts that tell of them."""

from __future__ import annotations

import argparse
import re
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from simulated_outages import evidence, poisson, run

from loadtests.chaos import cli
from loadtests.chaos.report.chaos_document import document
from loadtests.chaos.results import journal_file, scorecard
from loadtests.chaos.results.journal_file import Journal
from loadtests.chaos.results.scorecard import repeated
from loadtests.errors import PlanError
from pages import page_html, page_text

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from loadtests.chaos.measuring.observations import Evidence
    from pages.blocks import Document

PLANTED = "<script>alert(1)</script>"


def repetition(
    place: int = 0,
    outage: float = 1.0,
    strength: float | None = None,
    extension: dict[str, Any] | None = None,
    **more: Any,
) -> Evidence:
    load = run(poisson(100, 20, seed=place), refuses=((5.0, 5.0 + outage),))
    return evidence(
        load,
        inject=5.0,
        revert=5.0 + outage,
        kind="kill_server",
        extension=extension,
        repetition=place,
        strength=strength,
        **more,
    )


def kept(
    folder: Path, name: str, found: Sequence[Evidence], title: str = "A server dies"
) -> Path:
    folder.mkdir(exist_ok=True)
    file = folder / f"{name}.json"
    titled = [
        one.model_copy(update={"experiment": {**one.experiment, "title": title}})
        for one in found
    ]
    journal_file.write(file, Journal.of(titled))
    return file


def reported(journal: Journal) -> Document:
    return document(scorecard.scorecard([journal]), journal=journal)


def command(*arguments: object) -> int:
    parser = argparse.ArgumentParser()
    cli.add(parser.add_subparsers())
    options = parser.parse_args(["chaos", "report", *map(str, arguments)])
    return int(options.run(options))


def test_the_interval_of_a_median_covers_it_as_often_as_it_says() -> None:
    rng = np.random.default_rng(5)
    covered = [
        found.low <= 0.0 <= found.high
        for found in (repeated(rng.normal(size=9).tolist()) for _ in range(4000))
        if found is not None
    ]
    assert len(covered) == 4000
    assert np.mean(covered) == pytest.approx(0.95, abs=0.015)


def test_a_median_of_few_values_has_their_range() -> None:
    found = repeated([1.0, None, 3.0, 1.5])
    assert found is not None
    assert (found.known, found.median) == (3, 1.5)
    assert (found.low, found.high) == (1.0, 3.0)
    assert repeated([None]) is None


def test_repetitions_have_medians_of_what_is_known() -> None:
    found = [repetition(i, outage) for i, outage in enumerate((1.0, 1.1, 1.2))]
    (whole,) = scorecard.scorecard([journal_of(*found)]).rows
    assert (whole.recovered, whole.repetitions) == (3, 3)
    outage = whole.numbers["outage_seconds"]
    assert outage.median == pytest.approx(1.1, abs=0.06)
    recovered = whole.numbers["recovered_seconds"]
    assert recovered.median == pytest.approx(1.1, abs=0.06)
    assert "alert_seconds" not in whole.numbers


def test_a_sweep_has_a_row_for_each_strength_the_mildest_first() -> None:
    """As the experiment has them: of a quota, less is stronger."""
    found = [repetition(0, 1e-3, at) for at in (100.0, 50.0)]
    found.append(repetition(1, 99.0, 10.0))
    card = scorecard.scorecard([journal_of(*found)])
    assert [row.strength for row in card.rows] == [100.0, 50.0, 10.0]
    assert [row.verdict for row in card.rows] == ["held", "held", "finding"]


def test_a_card_has_every_experiment_once(tmp_path: Path) -> None:
    kept(tmp_path / "a", "one", [repetition()])
    kept(tmp_path / "a", "two", [repetition(0, 99.0)], "It never comes back")
    (tmp_path / "a" / "other.json").write_text("{}")
    card = scorecard.read(tmp_path / "a")
    assert [row.title for row in card.rows] == ["A server dies", "It never comes back"]
    assert [row.verdict for row in card.rows] == ["held", "finding"]
    assert card.held == 1
    kept(tmp_path / "a", "three", [repetition()])
    with pytest.raises(PlanError, match="twice"):
        scorecard.read(tmp_path / "a")
    (tmp_path / "b").mkdir()
    with pytest.raises(PlanError, match="no journal"):
        scorecard.read(tmp_path / "b")


@pytest.mark.parametrize(
    ("outages", "call", "code"),
    [
        ((1.0, 1.02, 0.98), "same", 0),
        ((3.0, 3.1, 3.2), "worse", 1),
        ((0.3, 0.31, 0.32), "better", 0),
        ((99.0, 99.0, 99.0), "worse", 1),
    ],
)
def test_two_cards_are_compared_number_by_number(
    tmp_path: Path, outages: Sequence[float], call: str, code: int
) -> None:
    before = kept(
        tmp_path / "before", "x", [repetition(i, 1 + i / 100) for i in range(3)]
    )
    after = kept(
        tmp_path / "after", "x", [repetition(i, o) for i, o in enumerate(outages)]
    )
    changes = scorecard.compared(scorecard.read(before), scorecard.read(after))
    assert scorecard.call_of(changes) == call
    assert command(after.parent, "--against", before) == code


def test_one_repetition_each_shows_no_change_and_a_missing_one_none() -> None:
    one = scorecard.scorecard([journal_of(repetition(0, 1.0))])
    other = scorecard.scorecard([journal_of(repetition(0, 2.0))])
    changes = scorecard.compared(one, other)
    assert {change.call for change in changes} <= {"unknown", "same"}
    assert scorecard.call_of(changes) == "same"
    nothing = one.model_copy(update={"rows": ()})
    assert scorecard.call_of(scorecard.compared(one, nothing)) == "unknown"


def journal_of(*found: Evidence) -> Journal:
    return Journal.of(found)


def test_a_card_that_was_written_is_read_again(tmp_path: Path) -> None:
    journal = kept(tmp_path / "a", "one", [repetition()])
    file = tmp_path / "card.json"
    assert command(journal, "--json", file) == 0
    assert scorecard.read(file) == scorecard.read(journal)
    assert command(journal, "--against", file) == 0


def test_the_command_tells_what_was_found_by_its_exit_status(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    held = kept(tmp_path, "held", [repetition()])
    never = kept(tmp_path, "never", [repetition(0, 99.0)], "It never comes back")
    assert command(held) == 0
    assert "recovered" in capsys.readouterr().out
    assert command(never) == 1
    assert "not recovered" in capsys.readouterr().out
    assert command(held, never) == 1
    assert "1 of 2 held" in capsys.readouterr().out
    with pytest.raises(PlanError, match="found no journal"):
        command()
    assert command("--schema", "journal") == 0
    assert command("--schema", "scorecard") == 0


def swept() -> Journal:
    extension = {"sweep": {"setting": "delay_ms", "values": [5, 50]}}
    found = [
        repetition(0, 0.01, 5.0, extension),
        repetition(1, 2.0, 50.0, extension),
    ]
    return journal_of(*found)


def test_a_page_holds_everything_itself_and_nothing_from_elsewhere() -> None:
    for journal in (journal_of(repetition()), swept()):
        page = page_html.render(reported(journal))
        assert page.startswith("<!doctype html>")
        assert not re.search(r"(?:src|href)\s*=|url\(|@import|<script", page)
        assert "NaN" not in page
        assert ">nan<" not in page
        assert page.count("<svg") == page.count("</svg>") >= 2


def test_what_an_experiment_says_is_text_on_the_page(tmp_path: Path) -> None:
    file = kept(tmp_path, "x", [repetition(leftovers=(PLANTED,))], title=PLANTED)
    html = tmp_path / "page.html"
    assert command(file, "--html", html) == 1
    page = html.read_text("utf-8")
    assert PLANTED not in page
    assert "&lt;script&gt;" in page
    other = kept(tmp_path, "y", [repetition()])
    assert command(file, other, "--html", html) == 1
    assert PLANTED not in html.read_text("utf-8")


def test_nothing_sent_and_nobody_watching_have_a_page_as_well() -> None:
    bare = evidence(None, status="failed", problems=("it did not come up",))
    journal = journal_of(bare)
    assert "it did not come up" in page_html.render(reported(journal))
    assert "FAILED" in page_text.render(reported(journal))
