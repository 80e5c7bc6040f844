"""The demo: a real Kafka, a simulated fleet that follows its decisions, and the real `trimtab run`, live in the terminal.

`python -m deploy.local.demo`; without a terminal it ends by itself and its exit code says whether the fleet was
balanced. It is one loop without threads of its own: read the topics, follow decisions, report a sweep, draw.
"""
