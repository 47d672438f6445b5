"""What is compiled: the skyline search and the index of free space; what happens where nothing compiles."""
