"""What the broker does by itself now and then, beside the loop."""
