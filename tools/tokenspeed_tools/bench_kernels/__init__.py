"""Times kernels, one file of cases for each op family."""
