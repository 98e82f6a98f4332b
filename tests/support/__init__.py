"""Code that tests share: four rooms, and here the modules about a whole run, its processes, waiting and work."""
