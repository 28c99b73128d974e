"""What is known of a job and its runs: plain data that targets write and all other code reads."""
