"""Repetitions, scorecards and the pages and texts that tell of them."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

import pytest
from simulated_outages import evidence, poisson, run
from whole_pages import whole

from loadtests.chaos import cli
from loadtests.chaos.chaos_commands import worst_of
from loadtests.chaos.measuring.observations import AlertChange
from loadtests.chaos.report.chaos_document import document
from loadtests.chaos.results import journal_file, scorecard
from loadtests.chaos.results.journal_file import Journal
from loadtests.errors import PlanError
from pages import page_html, page_text
from pages.blocks import Verdict

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from loadtests.chaos.measuring.observations import Evidence
    from pages.blocks import Document

PLANTED = "<script>alert(1)</script>"


def repetition(
    place: int = 0,
    outage: float = 1.0,
    **more: Any,
) -> Evidence:
    load = run(poisson(100, 20, seed=place), refuses=((5.0, 5.0 + outage),))
    return evidence(
        load,
        inject=5.0,
        revert=5.0 + outage,
        kind="kill_server",
        repetition=place,
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
    return document(scorecard.scorecard([journal]), journal)


def command(*arguments: object) -> int:
    parser = argparse.ArgumentParser()
    cli.add(parser.add_subparsers())
    options = parser.parse_args(["chaos", "report", *map(str, arguments)])
    return int(options.run(options))


def test_repetitions_have_medians_of_what_is_known() -> None:
    found = [repetition(i, outage) for i, outage in enumerate((1.0, 1.1, 1.2))]
    (whole,) = scorecard.scorecard([journal_of(*found)]).rows
    assert (whole.recovered, whole.repetitions) == (3, 3)
    assert whole.numbers["outage_seconds"] == pytest.approx(1.1, abs=0.06)
    assert whole.numbers["recovered_seconds"] == pytest.approx(1.1, abs=0.06)
    assert "alert_seconds" not in whole.numbers


def test_an_alert_that_was_not_asked_for_is_not_the_one_of_the_card() -> None:
    changes = (
        AlertChange(6.0, "SomethingElse", {}, "firing"),
        AlertChange(8.0, "TritonDown", {}, "firing"),
    )
    wanted = {"detect": {"alert": "TritonDown"}}
    found = repetition(alerts=changes, alerts_watched=True, extension=wanted)
    (row,) = scorecard.scorecard([journal_of(found)]).rows
    assert row.numbers["alert_seconds"] == 3.0


def test_a_card_has_a_row_for_each_journal_by_title_and_time(tmp_path: Path) -> None:
    folder = tmp_path / "a"
    later = repetition(0, 99.0, started_at=1.8e9)
    kept(folder, "one", [later])
    kept(folder, "two", [repetition()], "It comes back")
    kept(folder, "three", [repetition()])
    (folder / "other.json").write_text("{}")
    card = scorecard.scorecard(scorecard.journals(folder))
    assert [(row.title, row.started_at, row.verdict) for row in card.rows] == [
        ("A server dies", 1.7e9, "held"),
        ("A server dies", 1.8e9, "finding"),
        ("It comes back", 1.7e9, "held"),
    ]
    assert card.held == 2
    (tmp_path / "b").mkdir()
    with pytest.raises(PlanError, match="no journal"):
        scorecard.journals(tmp_path / "b")


def journal_of(*found: Evidence) -> Journal:
    return Journal.of(found)


def test_the_command_tells_what_was_found_by_its_exit_status(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    held = kept(tmp_path, "held", [repetition()])
    never = kept(tmp_path, "never", [repetition(0, 99.0)], "It never comes back")
    assert command(held) == 0
    assert "recovered" in capsys.readouterr().out
    assert command(never) == 1
    assert "did not recover" in capsys.readouterr().out
    assert command(held, never) == 1
    assert "1 of 2 held" in capsys.readouterr().out
    with pytest.raises(PlanError, match="found no journal"):
        command()
    assert command("--schema", "journal") == 0
    assert command("--schema", "scorecard") == 0


def test_an_experiment_that_shows_nothing_is_no_weakness_on_the_card() -> None:
    """Two runs on a machine that was too busy looked like two weaknesses."""
    shown = scorecard.scorecard([journal_of(repetition())])
    (row,) = shown.rows
    rows = [row.model_copy(update={"verdict": v}) for v in ("invalid", "invalid")]
    for verdicts, tone, text in (
        (rows, "note", "0 of 2 held; 2 invalid"),
        ([row, *rows], "note", "1 of 3 held; 2 invalid"),
        (
            [row.model_copy(update={"verdict": "finding"}), *rows],
            "bad",
            "0 of 3 held; 1 finding, 2 invalid",
        ),
        ([row], "good", "1 of 1 held"),
    ):
        held = sum(one.verdict == "held" for one in verdicts)
        card = shown.model_copy(update={"rows": tuple(verdicts), "held": held})
        assert document(card).blocks[0] == Verdict(tone, text)


@pytest.mark.parametrize(
    ("statuses", "worst"), [([0, 0], 0), ([0, 3], 3), ([3, 1, 0], 1), ([1, 2], 1)]
)
def test_a_finding_is_not_hidden_by_an_experiment_that_decided_nothing(statuses, worst):
    assert worst_of(statuses) == worst


def test_a_card_is_written_as_its_schema_has_it(tmp_path: Path) -> None:
    journal = kept(tmp_path / "a", "one", [repetition()])
    file = tmp_path / "card.json"
    assert command(journal, "--json", file) == 0
    card = scorecard.Scorecard.model_validate_json(file.read_text("utf-8"))
    assert card == scorecard.scorecard(scorecard.journals(journal))


def test_a_page_holds_everything_itself_and_nothing_from_elsewhere() -> None:
    for journal in (journal_of(repetition()), journal_of(repetition(), repetition(1))):
        page = page_html.render(reported(journal))
        assert page.startswith("<!doctype html>")
        assert "@import" not in page
        whole(page)
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
