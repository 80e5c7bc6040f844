"""The demo: a real Kafka, a simulated fleet that follows, and the real `trimtab run`, live in the terminal.

`python -m deploy.local.demo`; without a terminal it ends by itself and its exit code says whether the fleet was
balanced. One loop and no threads of its own: hear, follow, sweep, show.
"""
