"""The commands of `pulumi-trainer`, one module each; `parsers` loads the module of the command that runs."""
