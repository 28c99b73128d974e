"""The commands of `pulumi-trainer`, one module each; `cli` loads the module of the command that runs."""
