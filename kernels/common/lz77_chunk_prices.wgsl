// What the buffer `lz77_symbols` holds of each chunk: prices of symbols, in 1/256 bit, and counts of symbols. Both in this
// order: literals, tokens, offsets; prices also of literal codes of tokens, whatever the match. A price has that of the
// extra bits only for offsets.
const SYMBOL_WORDS = 1152u;
const SYMBOL_COUNTS = 576u; // behind the prices
const LITERALS = 0u;
const TOKENS = 256u;
const OFFSETS = 512u;
const OFFSET_SYMBOLS = 48u;
const RUNS = 560u;
const PRICE_WORDS = 568u;
const COUNT_WORDS = 560u;
const BIT = 256u;
