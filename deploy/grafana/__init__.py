"""The Grafana dashboards, built from the catalogue of metric families: `python -m deploy.grafana [--check]`.

A query names a family and its labels through `deploy.grafana.queries`, which refuses a label that the family does not
have. So no dashboard queries a metric that was removed. The JSON under `dashboards/` is generated and committed, for
provisioning.
"""
