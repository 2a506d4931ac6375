// What the buffer `lz77_symbols` holds of each chunk: prices of symbols, in 1/256 bit, and counts of symbols. Both in this
// order: literals, tokens, offsets; prices also of literal codes of tokens, whatever the match. A price has that of the
// extra bits only for offsets.
#define SYMBOL_WORDS 1152u
#define SYMBOL_COUNTS 576u  // behind the prices
#define LITERALS 0u
#define TOKENS 256u
#define OFFSETS 512u
#define OFFSET_SYMBOLS 48u
#define RUNS 560u
#define PRICE_WORDS 568u
#define COUNT_WORDS 560u
#define BIT 256u
