"""What can be held of the documents."""
