"""What tests share: four rooms, and here what concerns a run as a whole, its processes, its waiting and its work."""
