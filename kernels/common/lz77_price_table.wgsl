// The prices of a chunk's symbols for the optimal parse, in the form that workgroup memory stores and its rings add:
// see lz77/optimal. A file that imports this binds `symbols`, has the tables in `tables`, and in `table` the index of
// the lane's table.
// @pz_import lz77_chunk_prices

// Units of the fields of words in rings.
const ONE_PRICE = 2048u;
const ONE_LENGTH = 16u;

// A chunk's table, in words: for each literal code of tokens a row with the prices of lengths 3 to 66 and their extra
// bits, in the rings' units, and four words of padding, so that rows are in different banks; literals, two a word;
// match codes from 22 on; offsets; literal codes.
const LENGTHS_ROW = 68u;
const TABLE_LITERALS = 544u;
const LONG_CODES = 672u;
const TABLE_OFFSETS = 704u;
const TABLE_RUNS = 752u;
const TABLE_WORDS = 760u;

// The match code of a length, and the price of its extra bits.
fn length_code(length: u32) -> u32 {
    return select(17u + firstLeadingBit(max(length, 22u) - 14u), length - 2u, length < 22u);
}

fn length_bits(length: u32) -> u32 {
    return select(firstLeadingBit(max(length, 22u) - 14u) * BIT, 0u, length < 22u);
}

// The price of the extra bits of a run of literals.
fn run_bits(run: u32) -> u32 {
    let log = firstLeadingBit(max(run, 7u) - 6u);
    return select(select(12u, 3u + log, log < 7u) * BIT, 0u, run < 7u);
}

// The symbol of an offset that is not recent.
fn offset_symbol(offset: u32) -> u32 {
    let x = offset + 3u;
    let k = firstLeadingBit(x) - 1u;
    return 3u + 2u * (k - 1u) + (x >> k & 1u);
}

fn half_of(word: u32, number: u32) -> u32 {
    return word >> ((number & 1u) * 16u) & 0xffffu;
}

// A word of the table of the chunk whose symbols begin at `start`.
fn table_word(start: u32, k: u32) -> u32 {
    if k < TABLE_LITERALS {
        let row = start + TOKENS + 32u * (k / LENGTHS_ROW);
        let length = 3u + k % LENGTHS_ROW;
        return (symbols[row + length_code(length)] + length_bits(length)) * ONE_PRICE + (127u - length) * ONE_LENGTH;
    }
    if k < LONG_CODES {
        let two = start + LITERALS + 2u * (k - TABLE_LITERALS);
        return symbols[two] | symbols[two + 1u] << 16u;
    }
    if k < TABLE_OFFSETS {
        return symbols[start + TOKENS + 32u * (k - LONG_CODES >> 2u) + 22u + (k - LONG_CODES & 3u)];
    }
    if k < TABLE_RUNS {
        return symbols[start + OFFSETS + k - TABLE_OFFSETS];
    }
    return symbols[start + RUNS + k - TABLE_RUNS];
}

// A word of the lane's table.
fn table_at(place: u32) -> u32 {
    return tables[(table + place) / 4u][place & 3u];
}

// The price, in the rings' units, of a token with a match of `length` after literals of code `row`.
fn token_price(row: u32, length: u32) -> u32 {
    if length < 67u {
        return table_at(LENGTHS_ROW * row + length - 3u) & ~(ONE_PRICE - 1u);
    }
    return (table_at(LONG_CODES + 4u * row + length_code(length) - 22u) + length_bits(length)) * ONE_PRICE;
}
