"""TLS to a real Triton behind a real nginx: taken where it is sound, else refused."""

from __future__ import annotations

import contextlib
from dataclasses import replace

import pytest
from requirements import require
from tls_terminator import Authority, Terminator

from exporter.cli import main
from loadtests.engine import Options, run_closed
from loadtests.errors import LoadError
from loadtests.payloads.metadata import model_spec
from loadtests.result import Outcome
from loadtests.target import Target

pytestmark = pytest.mark.triton

PROTOCOLS = ("grpc", "http")
# What is wrong with the certificate, or with who is trusted; what is said of it.
UNSOUND = {
    "sound": "unable to get local issuer certificate",
    "expired": "certificate has expired",
    "elsewhere": "IP address mismatch, certificate is not valid for '127.0.0.1'",
}


@pytest.fixture(scope="session")
def authorities(tmp_path_factory) -> dict[str, Authority]:
    require("openssl")
    folder = tmp_path_factory.mktemp("authorities")
    return {name: Authority(folder / name) for name in ("own", "strange")}


@pytest.fixture(scope="session")
def terminator(loaded, authorities, tmp_path_factory):
    require("nginx")
    own = authorities["own"]
    certificates = {
        "sound": own.sign("sound"),
        "expired": own.sign("expired", days=-1),
        "elsewhere": own.sign("elsewhere", names="DNS:elsewhere.example"),
    }
    folder = tmp_path_factory.mktemp("nginx") / "nginx"
    with contextlib.closing(Terminator(folder, loaded, certificates)) as running:
        yield running


@pytest.fixture
def behind(terminator, authorities):
    """A target behind the terminator, trusting one authority."""

    def make(protocol, certificate="sound", authority="own", host="127.0.0.1"):
        address = f"{host}:{terminator.port(certificate, protocol)}"
        return Target(protocol, address, {}, str(authorities[authority].file))

    return make


@pytest.fixture
def run(capfd):
    def invoke(target: Target, *arguments: str) -> tuple[int, str, str]:
        capfd.readouterr()
        status = main(
            [
                *("load", "run", "--quiet", "--protocol", target.protocol),
                *("--address", target.address, "--ca-file", target.ca_file or ""),
                *arguments,
            ]
        )
        return (status, *capfd.readouterr())

    return invoke


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_load_goes_through_tls(behind, run, protocol, host) -> None:
    status, out, err = run(
        behind(protocol, host=host),
        *("--model", "double=3", "--model", "total=1", "--sequence-length", "4"),
        *("--concurrency", "3", "--duration", "1"),
    )
    # A busy machine may be the bottleneck, and is told so: then it is 3.
    assert (status in (0, 3), err) == (True, ""), out
    assert "correct answers per second  " in out
    assert "Errors" not in out


def test_a_stream_goes_through_tls(behind, run) -> None:
    status, out, err = run(
        behind("grpc"), *("--model", "stream", "--concurrency", "1", "--duration", "1")
    )
    assert (status in (0, 3), err) == (True, ""), out
    assert "first response" in out


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_proxy_that_ends_its_connections_loses_no_answer(
    behind, mix_of, protocol
) -> None:
    """nginx says goodbye after 1,000 requests on a connection."""
    target = behind(protocol)
    result = run_closed(
        target,
        mix_of(target, "double"),
        concurrency=2,
        duration_seconds=120.0,
        requests=5000,
        options=Options(timeout_seconds=20.0),
    )
    assert result.requests.count(Outcome.OK) == 5000, result.errors


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("certificate", UNSOUND)
def test_an_unsound_certificate_is_refused_and_it_is_said_why(
    behind, run, protocol, certificate
) -> None:
    trusted = "strange" if certificate == "sound" else "own"
    target = behind(protocol, certificate, trusted)
    status, out, err = run(target, "--model", "double", "--concurrency", "1")
    assert (status, out) == (1, "")
    assert err == (
        f"tritonwatch: {target.address}: its certificate is refused: "
        f"{UNSOUND[certificate]}; want a certificate signed by {target.ca_file}, "
        "valid today and for 127.0.0.1\n"
    )


@pytest.mark.parametrize(
    ("protocol", "model"), [("grpc", "double"), ("grpc", "stream"), ("http", "double")]
)
def test_the_senders_refuse_it_themselves(
    behind, loaded, mix_of, target_of, protocol, model
) -> None:
    """Also where a certificate goes bad between the first look and the run."""
    mix = mix_of(target_of(loaded, protocol), model)
    if model == "stream":
        (entry,) = mix.entries
        mix = replace(mix, entries=(replace(entry, style="stream"),))
    for target in (behind(protocol, "expired"), behind(protocol, "sound", "strange")):
        with pytest.raises(LoadError, match="its certificate is refused"):
            run_closed(target, mix, concurrency=1, duration_seconds=1.0)


def test_the_systems_authorities_do_not_vouch_for_a_test(behind) -> None:
    target = replace(behind("http"), ca_file="")
    with pytest.raises(LoadError, match="want a certificate signed by the system"):
        model_spec(target, "double")


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_port_without_tls_is_told_from_one_with_it(
    behind, loaded, target_of, protocol
) -> None:
    plain = target_of(loaded, protocol)
    with pytest.raises(LoadError, match=f"{plain.address} does not use TLS: "):
        model_spec(replace(plain, ca_file=behind(protocol).ca_file), "double")
    with pytest.raises(LoadError, match=behind(protocol).address):
        model_spec(replace(behind(protocol), ca_file=None), "double")


def test_a_file_without_certificates_is_wrong_usage(behind, run, tmp_path) -> None:
    file = tmp_path / "empty.pem"
    file.write_text("nothing\n", "ascii")
    target = replace(behind("grpc"), ca_file=str(file))
    status, _, err = run(target, "--model", "double", "--concurrency", "1")
    assert status == 2
    assert f"{file} cannot be used" in err
    assert "want certificates in PEM" in err
