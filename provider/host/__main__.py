"""`python -m pulumi_trainer.provider.host`, which `pulumi-resource-pulumi-python` beside it runs."""

from pulumi_trainer.provider.host import main

main()
