"""The arguments that a program gives to components, and the documents that they become."""
