"""Client-side assignors: choice, computation by a member, installation of the result, messages."""
