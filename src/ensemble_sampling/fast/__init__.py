"""What only makes things faster: without a file of this room all still works, slower."""
