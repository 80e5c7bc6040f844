"""What operators read from a controller and change in it: control events, and actions and rounds as text."""
