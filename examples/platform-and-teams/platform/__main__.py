"""The platform team's half: which releases of which runtimes teams train with."""

import pulumi
import pulumi_trainer as trainer

catalog = trainer.RuntimeCatalog.from_dir("runtimes")
stable = trainer.RuntimeChannel("stable", release="torch-team@1.0.0", catalog=catalog)
pulumi.export("stable", stable.offer)
