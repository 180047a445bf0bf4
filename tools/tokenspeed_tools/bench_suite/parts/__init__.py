"""The parts of the suite, a file each."""
