"""Scripts that only containers run. They travel with jobs as text, need Python 3.9, and import only each other and `shared`."""
