"""``trimtab split`` and ``trimtab throttle``: plans for a person, made before anything moves."""
