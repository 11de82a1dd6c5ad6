"""Grafana dashboards as code; `python -m grafana.build` writes dashboards/*.json."""
