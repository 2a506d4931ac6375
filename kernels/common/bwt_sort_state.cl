// The state of a block's sort: its length, the lengths of its lists in the order small, large for even and then for odd
// rounds, and from STATE_DIGITS on how many elements have each digit.
#define STATE_WORDS 272u
#define STATE_LEN 0u
#define STATE_SMALL 1u
#define STATE_LARGE 2u
#define STATE_DIGITS 16u
