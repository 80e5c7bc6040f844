"""Where a bundle goes whose policy names no destination: one module a placement, ``registry`` lists them."""
