"""A catalogue of runtimes: folders and git repositories that are read, their lock and their releases."""
