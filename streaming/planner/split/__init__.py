"""``trimtab split``: where to cut one bundle, as JSON and as a picture."""
