"""Control events as an operator writes them: read what stands, change a part, write the whole again."""
