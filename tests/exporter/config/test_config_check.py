"""`tritonwatch check`: what it says of a file and of the TLS files it names."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from commands import tritonwatch


def check(path):
    # A process of its own: what other tests leave behind writes to this one's output.
    done = tritonwatch("check", "--config", path, timeout=120)
    return done.returncode, done.stdout, done.stderr


def test_check_says_ok(tmp_path):
    path = tmp_path / "config.yaml"
    path.write_text("log: {level: debug}")
    assert check(path) == (0, f"{path}: ok\n", "")


def test_check_tells_every_problem_and_exits_1(tmp_path):
    path = tmp_path / "config.yaml"
    path.write_text("log: {format: xml}\nlisten: {port: -1}\n")
    status, _, problems = check(path)
    assert status == 1
    assert problems.splitlines() == [
        f"{path}: listen.port: found -1; want at least 0",
        f"{path}: log.format: found \"xml\"; want 'logfmt' or 'json'",
    ]


@pytest.mark.parametrize(
    ("pattern", "is_broad"),
    [
        ("triton-*:8001", True),
        ("*:8001", True),
        ("10.0.0.*:8001", True),
        ("*example.com:8001", True),
        ("*.com:8001", True),
        ("triton-0:8001", False),
        ("triton-?:*", False),
        ("[::1]:1", False),
        ("*.svc:8001", False),
        ("*.example.com:8001", False),
        ("triton-*.models.svc.cluster.local:8001", False),
    ],
)
def test_check_warns_of_targets_in_domains_of_others(tmp_path, pattern, is_broad):
    path = tmp_path / "config.yaml"
    path.write_text(json.dumps({"multi_target": {"allow": [pattern]}}))
    status, out, warnings = check(path)
    assert (status, out) == (0, f"{path}: ok\n")
    found = f"{path}: warning: multi_target.allow: {pattern!r} matches"
    assert [line.startswith(found) for line in warnings.splitlines()] == [
        True
    ] * is_broad


def check_tls(tmp_path, settings, http='"localhost:8000"'):
    path = tmp_path / "config.yaml"
    path.write_text(f"target: {{http: {http}, tls: {json.dumps(settings)}}}")
    status, out, err = check(path)
    return status, out.replace(f"{path}: ", ""), err.replace(f"{path}: ", "")


TLS = Path(__file__).parents[2] / "data" / "config" / "valid" / "tls"


@pytest.mark.parametrize("http", ['"localhost:8000"', "null"])
def test_check_reads_the_tls_files(tmp_path, http):
    settings = {
        "ca_file": str(TLS / "client.pem"),
        "cert_file": str(TLS / "client.pem"),
        "key_file": str(TLS / "client.key"),
    }
    assert check_tls(tmp_path, settings, http) == (0, "ok\n", "")


def test_check_names_every_tls_file_that_cannot_be_read(tmp_path):
    settings = {
        "ca_file": "no/ca.pem",
        "cert_file": "no/client.pem",
        "key_file": str(TLS),
    }
    status, _, problems = check_tls(tmp_path, settings)
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
    tmp_path, ca, certificate, key, told, http
):
    names = {"ca_file": ca, "cert_file": certificate, "key_file": key}
    settings = {name: str(TLS / file) for name, file in names.items() if file}
    status, _, problems = check_tls(tmp_path, settings, http)
    assert (status, problems.count("\n")) == (1, 1)
    assert problems.startswith(f"target.tls.{told}: found {TLS}")
