"""`tritonwatch check`: what it says of a file and of the TLS files it names."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from exporter import cli


def check(capsys, path):
    status = cli.main(["check", "--config", str(path)])
    output = capsys.readouterr()
    return status, output.out, output.err


def test_check_says_ok(capsys, tmp_path):
    path = tmp_path / "config.yaml"
    path.write_text("log: {level: debug}")
    assert check(capsys, path) == (0, f"{path}: ok\n", "")


def test_check_tells_every_problem_and_exits_1(capsys, tmp_path):
    path = tmp_path / "config.yaml"
    path.write_text("log: {format: xml}\nlisten: {port: -1}\n")
    status, _, problems = check(capsys, path)
    assert status == 1
    assert problems.splitlines() == [
        f"{path}: listen.port: found -1; want at least 0",
        f"{path}: log.format: found \"xml\"; want 'logfmt' or 'json'",
    ]


def check_tls(capsys, tmp_path, settings, http='"localhost:8000"'):
    path = tmp_path / "config.yaml"
    path.write_text(f"target: {{http: {http}, tls: {json.dumps(settings)}}}")
    status, out, err = check(capsys, path)
    return status, out.replace(f"{path}: ", ""), err.replace(f"{path}: ", "")


TLS = Path(__file__).parents[2] / "data" / "config" / "valid" / "tls"


@pytest.mark.parametrize("http", ['"localhost:8000"', "null"])
def test_check_reads_the_tls_files(capsys, tmp_path, http):
    settings = {
        "ca_file": str(TLS / "client.pem"),
        "cert_file": str(TLS / "client.pem"),
        "key_file": str(TLS / "client.key"),
    }
    assert check_tls(capsys, tmp_path, settings, http) == (0, "ok\n", "")


def test_check_names_every_tls_file_that_cannot_be_read(capsys, tmp_path):
    settings = {
        "ca_file": "no/ca.pem",
        "cert_file": "no/client.pem",
        "key_file": str(TLS),
    }
    status, _, problems = check_tls(capsys, tmp_path, settings)
    missing = "which cannot be used: No such file or directory"
    assert status == 1
    assert [line.split(";")[0] for line in problems.splitlines()] == [
        f"target.tls.ca_file: found no/ca.pem, {missing}",
        f"target.tls.cert_file: found no/client.pem, {missing}",
        f"target.tls.key_file: found {TLS}, which cannot be used: Is a directory",
    ]


@pytest.mark.parametrize("http", ['"localhost:8000"', "null"])
@pytest.mark.parametrize(
    ("ca", "certificate", "key", "told"),
    [
        ("other.key", None, None, "ca_file"),
        (None, "other.key", "other.key", "cert_file"),
        (None, "client.pem", "other.key", "cert_file"),
        (None, "client.pem", "encrypted.key", "key_file"),
    ],
)
def test_check_names_the_tls_file_that_holds_something_else(
    capsys, tmp_path, ca, certificate, key, told, http
):
    names = {"ca_file": ca, "cert_file": certificate, "key_file": key}
    settings = {name: str(TLS / file) for name, file in names.items() if file}
    status, _, problems = check_tls(capsys, tmp_path, settings, http)
    assert (status, problems.count("\n")) == (1, 1)
    assert problems.startswith(f"target.tls.{told}: found {TLS}")
