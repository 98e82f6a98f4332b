"""What decisions mean to a group, told to the journal: `reporter` looks at each and words what its records say."""
