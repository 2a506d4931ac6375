// The state of a block's sort: its length, then the lengths of its small and large lists for even rounds and for odd
// rounds, and from STATE_DIGITS on the number of elements with each digit.
#define STATE_WORDS 272u
#define STATE_LEN 0u
#define STATE_SMALL 1u
#define STATE_LARGE 2u
#define STATE_DIGITS 16u
