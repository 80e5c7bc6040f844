"""When a bundle is cut, and where. One module per algorithm, each with a ``divide(question) -> Cut``.

A split cannot be undone: Pulsar has no merge. So a bundle is cut only when it helps, and once, at the right place.
"""
