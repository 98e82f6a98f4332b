"""One partition's log over its segments, with its producers, epochs and the validation of batches."""
