"""What the container is made from: its recipe, its entry point, and the part of the lock that goes in."""
