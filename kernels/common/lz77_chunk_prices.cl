// The layout of `lz77_symbols` for each chunk: prices of symbols in 1/256 bit, and counts of symbols, both in the
// order literals, tokens, offsets. There are also prices of the tokens' literal codes, for any match. Only the
// prices of offsets include the extra bits.
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
