"""What the commands of `pulumi-trainer` do; `cli` parses their arguments and loads the module of the one that runs."""
