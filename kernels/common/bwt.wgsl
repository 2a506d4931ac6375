// Not used yet.
