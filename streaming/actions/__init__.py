"""Published actions, read back for people: as they come, and why one of them was decided."""
