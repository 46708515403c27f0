"""What all figures share: style, colours, grids of pictures."""
