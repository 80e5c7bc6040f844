"""``trimtab throttle``: a plan for one reassignment, from a file or a cluster, as text, JSON and picture, and put in force."""
