"""The consumer: its door and the application's side of it."""
