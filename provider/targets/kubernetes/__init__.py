"""Jobs as JobSets (or TrainJobs) of a Kubernetes cluster. `target.KubernetesTarget` is what others use."""
