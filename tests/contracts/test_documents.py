"""Every example of the pages: executed somewhere, valid here, or listed with its reason."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
from itertools import product
from typing import TYPE_CHECKING

import documents
import pytest
import yaml
from documents import ROOT, Block

from exporter.cli import _parser
from exporter.config.configuration import Config, parse

if TYPE_CHECKING:
    from pathlib import Path

PAGES = documents.pages()
BLOCKS = [block for page in PAGES for block in documents.blocks(page)]
QUICK_STARTS = {
    f"deploy/quickstarts/{p.name}" for p in ROOT.glob("deploy/quickstarts/*")
}
# Pages whose blocks of shell a test runs, line by line, and the test.
EXECUTED = {
    **dict.fromkeys(QUICK_STARTS, "tests/integration/test_quickstarts.py"),
    "drift/README.md": "tests/drift/test_readme.py",
}
# Lines of shell that no test runs, by how they begin, each with its reason. Commands of
# tritonwatch are held against its own parser all the same.
NOT_RUN = {
    "README.md": {
        "make demo": "the quick starts run it; its printed lines are held against these",
        "make test": "it is what runs this",
        "make .run/.installed": "what `make demo` makes; then serve, as in the quick"
        " starts",
    },
    "docs/production-latency.md": {
        "tritonserver …": "the flags are those of tests/integration/traces, held there",
        "curl -d": "Triton's own API, to which the demo posts the same",
    },
    "docs/drift.md": {
        "tritonwatch drift fit --data train.parquet": "tests/drift runs it on such a file",
    },
    "docs/answers.md": {
        "tritonwatch golden record": "the quick start of ML engineers runs it",
        "make demo ARGS": "tests/integration/test_demo_scenes.py runs the scenario",
    },
    "docs/commands.md": {
        "sed -i": "tests/exporter/features/slo/test_slo_rules.py, on the shipped rules",
    },
    "docs/comparisons.md": {
        "tritonwatch compare": "the quick start of ML engineers runs it",
        "tritonwatch coldstart": "tests/integration/test_cold_start.py",
    },
}
# Blocks of YAML that are no file of ours, each with who checks them.
OTHER_YAML = {
    "drift/README.md": "tests/drift/test_readme.py fits a profile with it",
}


def ids(block: Block) -> str:
    return block.name


# Shell.


@pytest.mark.parametrize("block", BLOCKS, ids=ids)
def test_a_block_says_in_which_language_it_is(block) -> None:
    assert block.language in {"sh", "yaml", "text", "python"}


def test_every_line_of_shell_is_run_or_has_its_reason() -> None:
    unused = {(page, start) for page, reasons in NOT_RUN.items() for start in reasons}
    for block in BLOCKS:
        if block.language != "sh" or block.page in EXECUTED:
            continue
        for line in documents.lines(block):
            starts = NOT_RUN.get(block.page, {})
            found = [start for start in starts if line.command.startswith(start)]
            assert found, f"{block.name}: {line.command}"
            unused -= {(block.page, start) for start in found}
    assert unused == set()


def test_the_tests_that_run_pages_are_there() -> None:
    for page, test in EXECUTED.items():
        assert (ROOT / page).is_file()
        assert (ROOT / test).is_file()


def commands_in_blocks() -> list[tuple[str, str]]:
    """Each command of ours in a fenced or indented block, and where it stands."""
    found = []
    for page in PAGES:
        text = documents.text_of(page)
        for block in documents.blocks(page):
            if block.language == "sh":
                found += [(block.name, line.command) for line in documents.lines(block)]
        indented = re.findall(r"^    (?:\$ )?(tritonwatch .+)$", text, re.MULTILINE)
        found += [(page, line) for line in indented]
    return [(where, c) for where, c in found if re.search(r"(?:^|/)tritonwatch ", c)]


def test_every_command_in_a_block_is_one_that_tritonwatch_takes(capsys) -> None:
    seen = commands_in_blocks()
    assert len(seen) > 30
    for where, command in seen:
        ours = command.rpartition("&&")[2].partition(">")[0].strip()
        _, *arguments = shlex.split(ours)
        try:
            _parser().parse_args(arguments)
        except SystemExit:
            pytest.fail(f"{where}: {command}: {capsys.readouterr().err}")


def spelled_out(command: str) -> list[list[str]]:
    """A form like `load list\\|run [--x]` as each command it stands for."""
    words = re.sub(r"[\[\]]", " ", command.replace("\\|", "|")).split()
    return [list(chosen) for chosen in product(*(word.split("|") for word in words))]


def test_every_command_in_the_text_is_one_that_there_is() -> None:
    seen = 0
    for page in PAGES:
        for code in re.findall(r"`(tritonwatch [^`]+)`", documents.text_of(page)):
            for words in spelled_out(" ".join(code.split())):
                seen += 1
                parser = _parser()
                rest = words[1:]
                while rest and rest[0] in (below := documents.sub_parsers(parser)):
                    parser, rest = below[rest[0]], rest[1:]
                named = [word for word in rest if not word.startswith("--")]
                assert not documents.sub_parsers(parser) or not named, f"{page}: {code}"
                options = [w.partition("=")[0] for w in rest if w.startswith("--")]
                known = {s for a in parser._actions for s in a.option_strings}
                assert set(options) <= known, f"{page}: {code}"
    assert seen > 20


def test_every_target_of_make_that_a_page_names_is_there() -> None:
    text = (ROOT / "Makefile").read_text("utf-8")
    there = set(re.findall(r"^([a-z./$()A-Z_-]+):", text, re.MULTILINE))
    for page in PAGES:
        for target in re.findall(
            r"(?:^|`)make ((?!PYTHON)[a-z.][\w./-]*)",
            documents.text_of(page),
            re.MULTILINE,
        ):
            assert target in there, f"{page}: make {target}"


# YAML.


YAMLS = [block for block in BLOCKS if block.language == "yaml"]


@pytest.mark.parametrize("block", YAMLS, ids=ids)
def test_every_file_in_a_page_is_one_that_its_reader_takes(
    block, tmp_path, monkeypatch, require_commands
) -> None:
    value = yaml.safe_load(block.text)
    if value.keys() <= Config.model_fields.keys():
        monkeypatch.chdir(tmp_path)
        capacity_report(tmp_path / "slow.json")
        variables = dict.fromkeys(re.findall(r"\$\{env:(\w+)\}", block.text), "x")
        parse(block.text.encode(), block.name, variables)
    elif "scrape_configs" in value:
        require_commands("promtool")
        taken_by_promtool(block, tmp_path)
    else:
        assert block.page in OTHER_YAML, block.text


def capacity_report(file: Path) -> None:
    """What `load capacity --json` writes, as far as the configuration looks at it."""
    ends = {"estimate": 180.0, "low": 170.0, "high": 190.0}
    report = {
        "format": "tritonwatch-load-capacity",
        "model": "slow",
        "slo": "p99<60ms",
        "valid": True,
        "conclusion": "meets p99<60ms up to 180 requests/s",
        "capacity": {"requests_per_second": ends},
    }
    file.write_text(json.dumps(report), "utf-8")


def taken_by_promtool(block: Block, folder: Path) -> None:
    (folder / "deploy").symlink_to(ROOT / "deploy")
    (folder / "slo-rules.yaml").write_text("groups: []\n", "utf-8")
    (folder / "prometheus.yml").write_text(block.text, "utf-8")
    done = subprocess.run(
        [shutil.which("promtool"), "check", "config", "prometheus.yml"],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


# Links.


@pytest.mark.parametrize("page", PAGES)
def test_every_link_leads_somewhere(page) -> None:
    folder = (ROOT / page).parent
    for target in documents.links(page):
        path, _, anchor = target.partition("#")
        there = (folder / path).resolve() if path else ROOT / page
        assert there.exists(), target
        if anchor:
            assert anchor in documents.anchors(str(there.relative_to(ROOT))), target


# The map of the code.


def test_every_place_where_to_look_is_there() -> None:
    """`file.py` (`Class.name`, `NAME`, …) in ARCHITECTURE.md: the file defines each."""
    page = documents.text_of("ARCHITECTURE.md")
    table = page.partition("\n## Where to look\n")[2].partition("\n## ")[0]
    places = re.findall(r"`([\w/]+\.py)`(?: \(([^)]*)\))?", table)
    assert len(places) > 20
    for path, names in places:
        (file,) = [
            f
            for top in ("exporter", "drift", "loadtests")
            for f in ROOT.glob(f"{top}/**/*.py")
            if str(f).endswith(f"/{path}")
        ]
        for name in re.findall("`([^`]+)`", names):
            last = name.rpartition(".")[2]
            defined = rf"\b(?:def|class) {last}\b|^{last}(?::| =)"
            assert re.search(defined, file.read_text(), re.MULTILINE), f"{path}: {name}"


def test_the_list_of_modules_is_fresh() -> None:
    made = subprocess.run(
        [sys.executable, ROOT / ".ci" / "modules.py"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    written = (ROOT / "docs" / "design" / "modules.md").read_text("utf-8")
    assert written == made, "docs/design/modules.md is stale: run make generate"


def test_every_folder_of_the_sidecar_is_in_the_table_of_folders() -> None:
    page = documents.text_of("ARCHITECTURE.md")
    table = page.partition("\n## Folders\n")[2].partition("\n## ")[0]
    named = set(re.findall(r"[`/](\w+)/`", table))
    folders = {init.parent.name for init in ROOT.glob("exporter/*/__init__.py")}
    assert folders <= named


def written_by_a_quick_start(page: str) -> set[str]:
    """The files that a reader of the page has in the checkout afterwards."""
    found = {block.file for block in documents.blocks(page) if block.file}
    options = re.compile(r"(?:--(?:html|json|output)|>|mkdir -p) ([\w./-]+)")
    for block in documents.blocks(page):
        if block.language == "sh":
            for line in documents.lines(block):
                found |= set(options.findall(line.command))
    return {name for name in found if not name.startswith("/")}


@pytest.mark.parametrize("page", sorted(QUICK_STARTS))
def test_git_does_not_see_what_a_quick_start_writes(page) -> None:
    names = written_by_a_quick_start(page)
    assert names, "every quick start writes a file"
    ignored = subprocess.run(
        ["git", "check-ignore", "--no-index", "--stdin"],
        cwd=ROOT,
        input="\n".join(names),
        capture_output=True,
        text=True,
        check=False,
    )
    assert set(ignored.stdout.split()) == names
