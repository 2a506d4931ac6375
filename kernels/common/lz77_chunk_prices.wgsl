// The layout of `lz77_symbols` for each chunk: prices of symbols in 1/256 bit, and counts of symbols, both in the
// order literals, tokens, offsets. There are also prices of the tokens' literal codes, for any match. Only the
// prices of offsets include the extra bits.
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
