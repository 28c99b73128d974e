"""What a cluster would refuse or lack, asked before anything is sent."""
