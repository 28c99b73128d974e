"""`python -m pulumi_trainer.provider.cli`."""

from pulumi_trainer.provider.cli.main import main

main()
