"""What all components of one program share: its session, its targets, its watch, and what the stack has."""
