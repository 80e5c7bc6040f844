"""What trimtab costs, measured against the limits it promises: ``python -m tests.bench``, or ``make bench``.

Each part measures one thing and returns its rows; ``report`` makes the page. Loads are synthetic but shaped like those
of a real Pulsar. No part knows another, and none changes what it measures.
"""
