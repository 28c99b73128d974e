"""The steps from the arguments of a TrainJob to its reviewed documents, one module for each step."""
