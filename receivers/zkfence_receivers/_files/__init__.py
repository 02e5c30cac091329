"""What `FileReceiver` is made of: folders, locks, records, and the two ways of keeping them."""
