"""The demo on a real Pulsar cluster whose traffic is all at one broker, live in the terminal.

`python -m deploy.local.demo_pulsar` starts the cluster, the traffic, and trimtab's collector, application and executor.
Without a terminal it ends by itself and its exit code says whether the cluster was balanced. Nothing is simulated:
loads are what the brokers report, and what is shown as moved has moved.
"""
