from pulumi_policy import EnforcementLevel, PolicyPack, ResourceValidationPolicy


def check(resource, report_violation):
    if resource.resource_type == "pulumi-python:dynamic/trainer:JobSet" and "summary" in resource.props:
        job = resource.props["summary"]
        if job["gpus"] > 16 and job.get("priority") != "high":
            report_violation(f"{resource.name} asks for {job['gpus']:.0f} GPUs; more than 16 need priority='high'")


PolicyPack(
    "training", [ResourceValidationPolicy("gpus", "Large jobs have a priority.", check, EnforcementLevel.MANDATORY)]
)
