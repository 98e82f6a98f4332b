"""What happens, told once: played by several tests, at any broker or with any client, or by the long runs."""
