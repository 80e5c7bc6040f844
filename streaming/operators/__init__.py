"""What operators ask of a controller and change: control events, and actions told in words."""
