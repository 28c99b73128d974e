"""What runs inside containers: the paths and files of user code, the initializers, the training helper and the scripts."""
