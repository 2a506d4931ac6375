// The state of a block's sort: its length, the lengths of its lists in the order small, large for even and then for odd
// rounds, and from STATE_DIGITS on how many elements have each digit.
const STATE_WORDS = 272u;
const STATE_LEN = 0u;
const STATE_SMALL = 1u;
const STATE_LARGE = 2u;
const STATE_DIGITS = 16u;
