"""An audit of a plan by rows made from its schema and draws of its noise; reads no table."""
