"""What the admin client returns: frozen rows, a module for each thing they are about."""
