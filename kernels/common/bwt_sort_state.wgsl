// The state of a block's sort: its length, then the lengths of its small and large lists for even rounds and for odd
// rounds, and from STATE_DIGITS on the number of elements with each digit.
const STATE_WORDS = 272u;
const STATE_LEN = 0u;
const STATE_SMALL = 1u;
const STATE_LARGE = 2u;
const STATE_DIGITS = 16u;
