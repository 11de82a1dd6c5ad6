"""The shipped rules and Alertmanager configuration, from a real fault to the webhook.

Of both files only what is a duration is changed, all by one factor, and the receivers,
which whoever ships them has to fill in.
"""

from __future__ import annotations

import copy
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from monitoring import Alertmanager, Job
from small_models import kill_stub
from waiting import wait_until

from exporter.config.configuration import parse
from exporter.features.slo.objectives import expanded
from exporter.features.slo.slo_rules import rules_file

if TYPE_CHECKING:
    from collections.abc import Callable

    from monitoring import Prometheus, Webhook

pytestmark = pytest.mark.triton

SHIPPED = Path(__file__).parents[2] / "deploy" / "prometheus"
FASTER = 60
SECONDS = {"s": 1, "m": 60, "h": 3600}
TIMES = {"group_wait", "group_interval", "repeat_interval"}
SLOS = [
    {
        "kind": "availability",
        "name": "answers",
        "source": "probes",
        "objective_ratio": 0.99,
    }
]


def hastened(duration: str) -> str:
    number, unit = re.fullmatch(r"(\d+)([smh])", duration).groups()
    return f"{max(1, int(number) * SECONDS[unit] * 1000 // FASTER)}ms"


def hastened_rules(text: str) -> str:
    return re.sub(
        r"^(\s+for: )(\w+)$", lambda m: m[1] + hastened(m[2]), text, flags=re.MULTILINE
    )


def hastened_config(shipped: dict[str, Any], url: str) -> dict[str, Any]:
    config = copy.deepcopy(shipped)
    for route in (config["route"], *config["route"]["routes"]):
        route.update({key: hastened(route[key]) for key in TIMES & route.keys()})
    for receiver in config["receivers"]:
        receiver["webhook_configs"] = [{"url": url, "send_resolved": True}]
    return config


def without(value: Any, keys: set[str]) -> Any:
    if isinstance(value, dict):
        return {k: without(v, keys) for k, v in value.items() if k not in keys}
    return [without(v, keys) for v in value] if isinstance(value, list) else value


def shipped_config() -> dict[str, Any]:
    return yaml.safe_load((SHIPPED / "alertmanager.yaml").read_text("utf-8"))


def shipped_rules() -> dict[str, str]:
    files = sorted((SHIPPED / "rules").glob("*.yaml"))
    return {file.name: file.read_text("utf-8") for file in files}


class Told:
    """What came to the webhook, and what Alertmanager holds back."""

    def __init__(self, webhook: Webhook, alertmanager: Alertmanager) -> None:
        self.webhook = webhook
        self.alertmanager = alertmanager

    def wait(self, what: str, found: Callable[[], Any], seconds: float = 60) -> Any:
        def told() -> str:
            came = [
                (m["receiver"], m["status"], m["groupLabels"], len(m["alerts"]))
                for m in list(self.webhook.messages)
            ]
            return f"{what} did not come; there were {came}"

        return wait_until(found, told, seconds)

    def resolved(self, name: str) -> Any:
        """Wait until the page was taken back for both replicas."""

        def found() -> bool:
            over = {
                alert["labels"]["instance"]
                for message in list(self.webhook.messages)
                for alert in message["alerts"]
                if message["receiver"] == "pages"
                and alert["status"] == "resolved"
                and alert["labels"]["alertname"] == name
            }
            return len(over) == 2

        self.wait(f"pages: the end of {name}", found)

    def group(self, receiver: str, status: str, count: int, **labels: str) -> Any:
        """A message of one group with at least so many alerts of that status."""

        def found() -> Any:
            for message in list(self.webhook.messages):
                fitting = [a for a in message["alerts"] if a["status"] == status]
                if (
                    message["receiver"] == receiver
                    and labels.items() <= message["groupLabels"].items()
                    and len(fitting) >= count
                ):
                    return message
            return None

        return self.wait(f"{receiver}: {count} {status} of {labels}", found)

    def held_back(self, name: str, **labels: str) -> Any:
        """The alert, once it is there and inhibited."""
        wanted = {"alertname": name, **labels}.items()

        def found() -> Any:
            for alert in self.alertmanager.alerts():
                if wanted <= alert["labels"].items():
                    return alert if alert["status"]["inhibitedBy"] else None
            return None

        return self.wait(f"an inhibited {name} of {labels}", found)

    def names(self, **labels: str) -> set[str]:
        """The alerts the webhook was told of."""
        return {
            alert["labels"]["alertname"]
            for alert in list(self.webhook.alerts)
            if labels.items() <= alert["labels"].items()
        }

    def source_of(self, alert: Any) -> set[str]:
        """The names of the alerts that inhibit it."""
        every = {a["fingerprint"]: a for a in self.alertmanager.alerts()}
        by = alert["status"]["inhibitedBy"]
        return {every[f]["labels"]["alertname"] for f in by if f in every}


@pytest.fixture
def watched(
    playground, settings, start_sidecar, start_prometheus, webhook, tmp_path
) -> Any:
    """Two sidecars of one Triton, as two replicas would be, with all that is shipped."""
    slos = expanded(parse(yaml.safe_dump({"slos": SLOS}).encode(), "s", {}).slos)
    rules = {name: hastened_rules(text) for name, text in shipped_rules().items()}
    rules["slo.yaml"] = rules_file(slos)
    sidecars = [start_sidecar(settings(playground, slos=SLOS)) for _ in range(2)]
    for sidecar in sidecars:
        sidecar.wait(lambda page: page.value("triton_model_serving", model="double"))
    config = hastened_config(shipped_config(), webhook.url)
    with Alertmanager(tmp_path, webhook, config) as alertmanager:
        prometheus = start_prometheus(
            Job([sidecar.port for sidecar in sidecars]),
            rules=rules,
            alertmanager=alertmanager,
        )
        prometheus.wait('count(triton_model_serving{model="double"} == 1) == 2')
        yield Told(webhook, alertmanager), prometheus


def fires(prometheus: Prometheus, name: str, **labels: str) -> None:
    matchers = "".join(f',{key}="{value}"' for key, value in labels.items())
    prometheus.wait(f'ALERTS{{alertname="{name}",alertstate="firing"{matchers}}}', 60)


@pytest.mark.slow
def test_a_model_that_lies_pages_once_holds_its_tickets_back_and_resolves(
    watched, playground
) -> None:
    told, prometheus = watched
    assert told.names() == set()
    kill_stub(playground.triton, "double")
    page = told.group("pages", "firing", 2, alertname="TritonReadinessLie")
    # One message for the model, whichever replicas it is on.
    assert page["groupLabels"] == {
        "alertname": "TritonReadinessLie",
        "job": "tritonwatch",
        "model": "double",
    }
    assert len({a["labels"]["instance"] for a in page["alerts"]}) == 2
    for alert in page["alerts"]:
        assert (
            "is ready but does not answer correctly" in alert["annotations"]["summary"]
        )
        runbook = alert["annotations"]["runbook_url"]
        assert runbook.endswith("/TritonReadinessLie.md?model=double")
    # The page says what these tickets would.
    fires(prometheus, "TritonProbesFailing", model="double")
    ticket = told.held_back("TritonProbesFailing", model="double")
    assert told.source_of(ticket) == {"TritonReadinessLie"}
    # The budget burns as well: a page of its own, whose ticket is held back by it.
    told.group("pages", "firing", 1, alertname="TritonSLOBurnPage", slo="answers")
    fires(prometheus, "TritonSLOBurnTicket")
    burning = told.held_back("TritonSLOBurnTicket", slo="answers")
    assert told.source_of(burning) == {"TritonSLOBurnPage"}
    assert told.names() == {"TritonReadinessLie", "TritonSLOBurnPage"}
    # As its runbook says: such an unload hangs, and a load releases it.
    playground.begin("double", "unload")
    playground.model("double", "load")
    told.resolved("TritonReadinessLie")


@pytest.mark.slow
def test_a_server_that_is_down_explains_everything_else_about_it(
    watched, playground
) -> None:
    told, prometheus = watched
    playground.triton.kill()
    page = told.group("pages", "firing", 2, alertname="TritonDown")
    assert page["groupLabels"] == {"alertname": "TritonDown", "job": "tritonwatch"}
    fires(prometheus, "TritonProbesFailing")
    ticket = told.held_back("TritonProbesFailing")
    assert told.source_of(ticket) == {"TritonDown"}
    assert "TritonProbesFailing" not in told.names()
    playground.triton.start()
    told.resolved("TritonDown")


def test_a_server_that_lists_nothing_is_one_ticket(webhook, tmp_path) -> None:
    config = hastened_config(shipped_config(), webhook.url)
    stale = {"alertname": "TritonwatchCollectorStale", "severity": "ticket"}
    unlisted = {"alertname": "TritonModelsUnlisted", "severity": "ticket"}
    server = {"job": "t", "instance": "a", "collector": "server"}
    others = [{"collector": "traces"}, {"instance": "b"}]
    with Alertmanager(tmp_path, webhook, config) as alertmanager:
        told = Told(webhook, alertmanager)
        alertmanager.take(unlisted | server)
        alertmanager.take(*(stale | server | other for other in ({}, *others)))
        ticket = told.held_back("TritonwatchCollectorStale", **server)
        assert told.source_of(ticket) == {"TritonModelsUnlisted"}
        for other in others:
            labels = stale | server | other
            told.wait(f"a ticket of {other}", lambda labels=labels: sent(told, labels))
        assert not sent(told, stale | server)


def test_a_server_that_is_down_mutes_its_symptoms_and_nothing_else(
    webhook, tmp_path
) -> None:
    config = hastened_config(shipped_config(), webhook.url)
    server = {"job": "t", "instance": "a"}
    names = {
        rule["alert"]
        for text in shipped_rules().values()
        for group in yaml.safe_load(text)["groups"]
        for rule in group["rules"]
        if "alert" in rule and rule["alert"] != "TritonDown"
    }
    with Alertmanager(tmp_path, webhook, config) as alertmanager:
        told = Told(webhook, alertmanager)
        alertmanager.take({"alertname": "TritonDown", "severity": "page"} | server)
        # Of different models, so that none of them mutes another.
        tickets = [
            {"alertname": name, "severity": "ticket", "model": name} | server
            for name in names
        ]
        alertmanager.take(*tickets)
        other = tickets[0] | {"instance": "b"}
        alertmanager.take(other)
        told.held_back("TritonProbesFailing", **server)
        told.wait("a ticket of another server", lambda: sent(told, other))
        muted = {
            alert["labels"]["alertname"]
            for alert in alertmanager.alerts()
            if alert["status"]["inhibitedBy"]
        }
        assert muted > {"TritonProbesFailing", "TritonClientsSeeFailures"}
        spared = {name for name in names if name.startswith("Tritonwatch")}
        # A board's error may be the reason; wrong answers have another one.
        spared |= {"TritonGpuXidError", "TritonGpuThrottling", "TritonPowerSensorFault"}
        spared |= {"TritonSilentFailure", "TritonGoldenLoss", "TritonSeveralServers"}
        assert not muted & spared
        told.wait("what is not muted", lambda: names - muted <= told.names(**server))


def sent(told: Told, labels: dict[str, str]) -> bool:
    return any(alert["labels"] == labels for alert in list(told.webhook.alerts))
