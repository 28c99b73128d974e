"""Rules of a platform team about jobs: the same in a program, for files, in a policy pack of Pulumi and in a cluster."""
