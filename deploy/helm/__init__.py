"""The Helm chart's generated part: what its values may be.

The chart itself is `trimtab/`; its `files/` are links to the dashboards and rules beside it, which Helm follows, so
that there is one copy of each.
"""
