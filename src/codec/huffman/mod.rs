//! Length-limited canonical Huffman codes: lengths, codes, decoding tables and their compact description.
