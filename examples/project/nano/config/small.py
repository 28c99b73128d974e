# Values of train.py that this file replaces.
layers = 2
heads = 2
width = 32
learning_rate = 3e-3
