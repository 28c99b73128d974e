"""The state that all components of one program share: its session, its targets, its watch, and the stack's resources."""
