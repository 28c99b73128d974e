"""From the arguments of a TrainJob to the documents that are sent, reviewed: one module for each step."""
