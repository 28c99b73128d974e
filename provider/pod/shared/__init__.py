"""What plans and containers run alike: files that travel with jobs, and import only each other."""
