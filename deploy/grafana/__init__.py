"""The Grafana dashboards, built from the catalogue of metric families: `python -m deploy.grafana [--check]`.

A query names a family and its labels through `deploy.grafana.queries`, which refuses what the family does not have;
so a dashboard cannot outlive a metric. The JSON under `dashboards/` is generated and committed, for provisioning.
"""
