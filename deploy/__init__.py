"""How trimtab is run: on this machine (`deploy.local`), and what a cluster needs to run it."""
