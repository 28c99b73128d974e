"""The arguments that a program passes to components, and their conversion to documents."""
