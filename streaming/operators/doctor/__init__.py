"""``trimtab doctor``: everything a person would look at first. ``looking`` gathers, the other modules judge, purely."""
