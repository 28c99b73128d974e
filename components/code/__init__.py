"""What travels with a job: a function, a script or a project as files and an archive, and what is wrong with it."""
