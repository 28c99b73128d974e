"""`python -m pulumi_trainer.provider.engine.host`, which `pulumi-resource-pulumi-python` beside it runs."""

from pulumi_trainer.provider.engine.host import main

main()
