"""Where a bundle goes when its policy names no destination: one module per placement; ``registry`` lists them."""
