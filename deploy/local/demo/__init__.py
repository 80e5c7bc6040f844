"""The demo: the real `trimtab run` balances a simulated fleet behind a real Kafka, or a real Pulsar cluster, live in the terminal.

`python -m deploy.local.demo` has the fleet, which follows the decisions; with `--pulsar` nothing is simulated: loads are
what the brokers report, and what is shown as moved has moved. Without a terminal it ends by itself and its exit code says
whether the fleet was balanced.
"""
